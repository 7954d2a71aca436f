"""Breakpoints on source lines, by the interpreter's trace function, installed only while there are any. Any adapter may use it."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from tensonde.model.moment import Moment, Phase
from tensonde.model.stop import Breakpoint, Stop
from tensonde.session.gate import Gate

log = logging.getLogger("tensonde.debugger")


class LineTrace:
    """`thread` is the one that trains, `names` what a condition may name beside the program's own (step, phase, loss), and `hit` stops."""

    def __init__(
        self,
        gate: Gate,
        thread: Callable[[], int],
        names: Callable[[], dict[str, Any]],
        hit: Callable[[Stop], None],
    ) -> None:
        self._gate, self._thread, self._names, self._hit = gate, thread, names, hit
        self.active = False
        self._files: dict[str, str] = {}  # co_filename → real path
        self._wanted: dict[tuple[str, int], Breakpoint] = {}

    def activate(self, wanted: bool) -> None:
        self._wanted = {(os.path.realpath(point.file), point.line): point for point in self._gate.lines}
        if wanted:
            sys.settrace(self._on_call)
            frame: FrameType | None = sys._getframe(1)
            while frame is not None:  # frames that are running already
                if self._in_wanted_file(frame):
                    frame.f_trace = self._on_line
                frame = frame.f_back
        elif self.active:
            sys.settrace(None)
        self.active = wanted

    def _real(self, frame: FrameType) -> str:
        name = frame.f_code.co_filename
        known = self._files.get(name)
        if known is None:
            known = self._files[name] = os.path.realpath(name)
        return known

    def _in_wanted_file(self, frame: FrameType) -> bool:
        real = self._real(frame)
        return any(file == real for file, _ in self._wanted)

    def _on_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._on_line if self._in_wanted_file(frame) else None

    def _on_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line" and threading.get_ident() == self._thread():
            point = self._wanted.get((self._real(frame), frame.f_lineno))
            if point is not None and point.id in self._gate.breakpoints and self._holds(point, frame):
                names = self._names()
                phase = next(phase for phase in Phase if str(phase) == names["phase"])
                self._hit(Stop("line", Moment(names["step"], phase), frame=frame, breakpoint=point.id))
                return frame.f_trace or self._on_line  # pdb may have taken the frame over meanwhile
        return self._on_line

    def _holds(self, point: Breakpoint, frame: FrameType) -> bool:
        """The condition of a line breakpoint is Python in the user's frame, as in pdb: the user's own code.

        Names that the frame does not have are Tensonde's, if it has them: step, epoch, rank, phase, loss."""
        if not point.condition:
            return True
        try:
            return bool(eval(point.condition, {**self._names(), **frame.f_globals}, frame.f_locals))
        except Exception as problem:
            log.warning("the condition of breakpoint %d failed, so it stops: %s", point.id, problem)
            return True
