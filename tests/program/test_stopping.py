"""Lines that can be stopped at, and who may stop there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tensonde.errors import UsageError
from tensonde.program.stopping import code_lines
from tensonde.session.lines import check_line


def test_lines_with_code(tmp_path: Path) -> None:
    source = tmp_path / "train.py"
    source.write_text("# a comment\nx = 1\n\ndef f():\n    return x\n")
    assert code_lines(str(source)) == {2, 4, 5}
    with pytest.raises(UsageError, match=r"train.py:3 has no code; the nearest line that has is 4"):
        check_line(str(source), 3)
    check_line(str(source), 5)
    check_line(str(tmp_path / "not_there.py"), 3)  # perhaps a cell of a notebook


def test_the_trace_function_of_another_debugger_is_left_alone(tmp_path: Path) -> None:
    source = tmp_path / "train.py"
    source.write_text("x = 1\n")
    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: None)
    try:
        with pytest.raises(UsageError, match="another debugger"):
            check_line(str(source), 1)
    finally:
        sys.settrace(before)
