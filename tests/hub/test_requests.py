"""The table of requests: complete, documented, and what an agent declares."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from tensonde.protocol.messages import RequestKind
from tensonde.session.serving.document import PAGE, page
from tensonde.session.serving.requests import CAPABILITIES, REQUESTS

ROOT = Path(__file__).parents[2]


def test_every_request_of_the_protocol_has_a_row() -> None:
    assert set(REQUESTS) == set(get_args(RequestKind))


def test_capabilities() -> None:
    assert CAPABILITIES == [
        "read", "pause", "step", "next", "nextop", "until", "finish", "terminate", "watchpoints", "breakpoints",
        "tensors", "digests", "model", "assign", "command",
    ], "the web UI and scripts know these words"  # fmt: skip


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / PAGE).read_text() == page(), "run `python -m tensonde.session.serving.document`"
