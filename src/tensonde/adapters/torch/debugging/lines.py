"""Breakpoints on source lines, by the interpreter's trace function, installed only while there are any."""

from __future__ import annotations

import logging
import os
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

from tensonde.model.moment import Moment
from tensonde.model.site import Role
from tensonde.model.stop import Breakpoint, Stop

log = logging.getLogger("tensonde.debugger")

if TYPE_CHECKING:
    from tensonde.adapters.torch.debugging.stops import Stops


class LineTrace:
    def __init__(self, stops: Stops) -> None:
        self.stops = stops
        self.active = False
        self._files: dict[str, str] = {}  # co_filename → real path
        self._wanted: dict[tuple[str, int], Breakpoint] = {}

    def activate(self, wanted: bool) -> None:
        self._wanted = {(os.path.realpath(point.file), point.line): point for point in self.stops.gate.lines}
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
        if event == "line" and threading.get_ident() == self.stops.eager.thread:
            point = self._wanted.get((self._real(frame), frame.f_lineno))
            if point is not None and point.id in self.stops.gate.breakpoints and self._holds(point, frame):
                session = self.stops.eager.session
                moment = Moment(session.steps.step, self.stops.eager.phase)
                self.stops.hit(Stop("line", moment, frame=frame, breakpoint=point.id))
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

    def _names(self) -> dict[str, Any]:
        """Of the step that runs; `loss` is the last one that was seen, NaN before the first."""
        eager, kept = self.stops.eager, self.stops.kept
        site = eager.session.site_ids.get(("loss", Role.VALUE, None))
        seen = kept.get(site) if site is not None else None
        loss = float(seen.tensor) if seen is not None and seen.tensor.numel() == 1 else float("nan")
        return {
            "step": eager.session.steps.step,
            "epoch": eager.epoch,
            "rank": eager.session.rank,
            "phase": str(eager.phase),
            "loss": loss,
        }
