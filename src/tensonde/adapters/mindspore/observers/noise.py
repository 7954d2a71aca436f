"""Dropout that is applied in an evaluation: the first calls of each root in eval mode are looked at op by op."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any

from tensonde.adapters.mindspore.tracing import dispatch
from tensonde.program.frames import user_frame
from tensonde.program.lines import CodeLine, line_of

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative

CALLS = 2
"""Evaluations of one root that are looked at."""
MOST = 16


class Noise:
    """Belongs to the training thread."""

    def __init__(self, training: PyNative) -> None:
        self._training = training
        self._calls: dict[str, int] = {}
        self._looking = False
        self._found: dict[CodeLine, dict[str, Any]] = {}

    def root_called(self, name: str, root: Any, *, grad: bool) -> None:
        if grad or root.training or self._training.tracing.tracer is not None:
            return
        calls = self._calls.get(name, 0)
        if calls < CALLS and len(self._calls) < MOST:
            self._calls[name] = calls + 1
            self._looking = True
            dispatch.look(self._ran)

    def root_left(self) -> None:
        if self._looking:
            self._looking = False
            dispatch.look_away(self._ran)

    def _ran(self, name: str, args: Any, out: Any, frame: FrameType) -> None:
        stack = self._training.stack
        if not name.startswith("Dropout") or not stack or len(self._found) >= MOST:
            return
        entry, caller = stack[-1], user_frame(frame)
        cell, keep = entry.ref(), getattr(args[0], "keep_prob", None) if args else None
        if cell is None or caller is None or not isinstance(keep, float) or keep >= 1:
            return
        self._found.setdefault(
            (caller.f_code, caller.f_lineno),
            {
                "op": "dropout",
                "p": 1 - keep,
                "module": entry.name,
                "type": entry.type,
                "module_training": bool(cell.training),
                "library": type(cell).__module__.startswith("mindspore."),
            },
        )

    def facts(self) -> list[dict[str, Any]]:
        return [{**fact, "line": line_of(place)} for place, fact in self._found.items()]
