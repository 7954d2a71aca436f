"""What TAB offers, from the text before the cursor."""

from __future__ import annotations

from typing import Any

import pytest

from tensonde.debugger.commands import TABLE
from tensonde.debugger.complete import complete
from tensonde.session.inspector import ModuleNode


class TwoModules:
    """An inspector that knows two modules, of which one has run, and a parameter."""

    session: Any = None

    def modules(self) -> list[ModuleNode]:
        return [ModuleNode(name, "Linear", 1, 8, 8, True) for name in ("head", "heap")]

    def addresses(self) -> list[str]:
        return ["head:out", "head.weight:value", "head.weight:grad"]


@pytest.mark.parametrize(
    ("text", "length", "offers"),
    [
        ("brea", 4, ["break "]),
        ("", 0, TABLE.names),
        ("sta", 3, ["stats", "status"]),
        ("c; wher", 4, ["where"]),
        ("break hea", 3, ["head", "head.weight", "heap"]),
        ("b heap:", 5, ["heap:grad", "heap:grad_in", "heap:in", "heap:out"]),
        ("print head.weight:", 12, ["head.weight:grad", "head.weight:value"]),
        ("watch head:out explo", 5, ["exploding"]),
        ("break head:out if absm", 4, ["absmax", "absmean"]),
        ("info br", 2, ["breakpoints"]),
        ("next ", 0, ["op"]),
        ("help unw", 3, ["unwatch"]),
        ("step ", 0, []),
        ("nosuch hea", 0, []),
    ],
)
def test_offers(text: str, length: int, offers: list[str]) -> None:
    assert complete(text, TABLE, TwoModules()) == (length, offers)  # type: ignore[arg-type]
