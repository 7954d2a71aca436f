"""Adds a ledger up: the peak, who holds what there, and how the peak depends on the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensonde.adapters.torch.memory.ledger import BEFORE, Held, Ledger
from tensonde.model.memory import Use
from tensonde.model.moment import Phase
from tensonde.program.lines import to_json

MOST_PARTS = 64
_PIECE = 512
"""CUDA's allocator gives memory in multiples of it."""
Share = Callable[[Held], float]
"""The part of a piece of memory that grows with the batch, 0 to 1."""


def bytes_of(held: Held) -> int:
    if held.device == "cpu":
        return held.bytes
    return -(-held.bytes // _PIECE) * _PIECE


def use_of(held: Held) -> Use:
    if held.use is not None:
        return held.use
    if held.op == BEFORE:
        return "data"
    if held.phase is Phase.FORWARD or held.place.again:
        return "activations" if held.derived else "data"
    return "workspace"


class Account:
    """Of one device. `ends`: the length of the log when each step ended."""

    def __init__(self, ledger: Ledger, device: str, ends: list[int]) -> None:
        self.ledger, self.device, self.ends = ledger, device, ends
        self.changes = [self._change(number) for number in ledger.log]
        self.peak, self.at = self._highest(0, len(self.changes))

    def _change(self, number: int) -> int:
        held = self.ledger.held[number if number >= 0 else ~number]
        if held.device != self.device:
            return 0
        return bytes_of(held) if number >= 0 else -bytes_of(held)

    def _highest(self, first: int, last: int) -> tuple[int, int]:
        """The most that is in use there, and at which entry of the log."""
        used = sum(self.changes[:first])
        peak, at = used, first
        for k in range(first, last):
            used += self.changes[k]
            if used > peak:
                peak, at = used, k
        return peak, at

    def steps(self) -> list[dict[str, int]]:
        found, first = [], 0
        for step, last in enumerate(self.ends):
            found.append({"step": step, "peak": self._highest(first, last)[0], "left": sum(self.changes[:last])})
            first = last
        return found

    def alive(self, at: int) -> Iterable[Held]:
        """In use after this entry of the log."""
        for held in self.ledger.held:
            if held.device == self.device and held.born <= at and (held.died is None or held.died > at):
                yield held

    def where(self) -> dict[str, Any]:
        """The op that makes the peak."""
        number = self.ledger.log[self.at] if self.at < len(self.ledger.log) else 0
        held = self.ledger.held[max(number, ~number)]
        return {
            "step": held.step,
            "phase": str(held.phase),
            "op": held.op,
            "module": held.place.module,
            "line": to_json(held.place.line),
        }

    def uses(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for held in self.alive(self.at):
            found[use_of(held)] = found.get(use_of(held), 0) + bytes_of(held)
        return found

    def parts(self) -> list[dict[str, Any]]:
        return self._grouped(lambda held: (use_of(held), held.place.module, held.place.type), ("use", "module", "type"))

    def lines(self) -> list[dict[str, Any]]:
        computed = ("activations", "workspace")
        return self._grouped(
            lambda held: (use_of(held), held.place.module, held.place.line) if use_of(held) in computed else None,
            ("use", "module", "line"),
        )

    def _grouped(self, key: Callable[[Held], tuple[Any, ...] | None], names: tuple[str, ...]) -> list[dict[str, Any]]:
        found: dict[tuple[Any, ...], list[int]] = {}
        for held in self.alive(self.at):
            group = key(held)
            if group is not None:
                entry = found.setdefault(group, [0, 0])
                entry[0] += bytes_of(held)
                entry[1] += 1
        largest = sorted(found.items(), key=lambda item: -item[1][0])[:MOST_PARTS]
        made = []
        for group, (size, count) in largest:
            part = dict(zip(names, group, strict=True), bytes=size, tensors=count)
            if "line" in part:
                part["line"] = to_json(part["line"])
            made.append(part)
        return made

    def envelope(self, batch: int, share: Share) -> list[tuple[float, float]]:
        """Pairs (fixed, each): with b samples the peak is the largest `fixed + b * each`."""
        fixed = each = 0.0
        points: dict[float, float] = {}
        for number, change in zip(self.ledger.log, self.changes, strict=True):
            part = share(self.ledger.held[max(number, ~number)]) if change else 0.0
            fixed += change * (1 - part)
            each += change * part / batch
            if change > 0:
                key = round(each, 3)
                points[key] = max(points.get(key, 0.0), fixed)
        hull: list[tuple[float, float]] = []
        for slope in sorted(points, reverse=True):
            line = (round(points[slope], 1), slope)
            while hull and line[0] >= hull[-1][0] and line[1] >= hull[-1][1]:
                hull.pop()
            if not hull or line[0] > hull[-1][0]:
                while len(hull) > 1 and _meet(hull[-2], line) >= _meet(hull[-2], hull[-1]):
                    hull.pop()
                hull.append(line)
        return hull


def _meet(steep: tuple[float, float], flat: tuple[float, float]) -> float:
    """The batch at which both lines are equal."""
    return (flat[0] - steep[0]) / (steep[1] - flat[1])


def devices(ledger: Ledger) -> list[str]:
    return sorted({held.device for held in ledger.held})
