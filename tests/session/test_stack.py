"""The user's frames at a stop, as the hub gets them."""

from __future__ import annotations

import sys
from types import FrameType

from tensonde.model.site import SourceLine
from tensonde.session.serving.feed import stack

HERE = __file__


def compiled() -> FrameType: return sys._getframe()  # fmt: skip


def test_the_frames_of_the_program_come_innermost_first() -> None:
    frames = stack(sys._getframe())
    assert frames[0]["function"] == "test_the_frames_of_the_program_come_innermost_first"
    assert frames[0]["code"] == "frames = stack(sys._getframe())"
    line = SourceLine(HERE, frames[0]["line"] + 4)  # that of the call below
    assert stack(sys._getframe(), line)[0]["function"] != "compiled code", "the line that runs is the frame's"


def test_inside_of_compiled_code_the_line_of_the_node_stands_for_the_frame_that_was_compiled() -> None:
    node = SourceLine(HERE, 5, "from types import FrameType")
    frames = stack(compiled(), node)
    assert (frames[0]["line"], frames[0]["function"], frames[0]["code"]) == (5, "compiled code", node.code)
    assert "compiled" not in [frame["function"] for frame in frames[1:]]
    assert frames[1]["function"].startswith("test_inside_of_compiled_code")
