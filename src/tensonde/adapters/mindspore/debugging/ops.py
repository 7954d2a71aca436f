"""Ops as places to stop at, while somebody wants that."""

from __future__ import annotations

from collections import Counter
from types import FrameType
from typing import TYPE_CHECKING, Any

from tensonde.adapters.mindspore.tracing import dispatch
from tensonde.adapters.mindspore.tracing.names import primitive
from tensonde.model.moment import Phase

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.debugging.stops import Stops


class OpStops:
    def __init__(self, stops: Stops) -> None:
        self.stops = stops
        self.counts: dict[int, Counter[str]] = {}

    def activate(self, wanted: bool) -> None:
        if wanted:
            dispatch.look(self.called)
        else:
            dispatch.look_away(self.called)

    def new_step(self) -> None:
        self.counts.clear()

    def called(self, name: str, args: Any, out: Any, frame: FrameType) -> None:
        training = self.stops.training
        if training.phase is not Phase.FORWARD or training.thread < 0:
            return
        entry = training.stack[-1] if training.stack else None
        counter = self.counts.setdefault(id(entry) if entry else 0, Counter())
        kind = primitive(name)
        key = f"{entry.calls}:{kind}" if entry else kind
        count = counter[key]
        counter[key] += 1
        try:
            self.stops.op(f"{entry.name if entry else ''}/{kind}#{count}", kind, out)
        except Exception as problem:
            training.contain("observing an op", problem)
