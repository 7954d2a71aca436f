"""The order of backward passes, clearing and optimizer steps, by what became of the gradients.

Looks at the state of one small gradient per optimizer, not at calls of `zero_grad`: setting `p.grad = None`
clears as well, and `zero_grad` of the wrong optimizer does not.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.observers.reading import EARLY, READING
from tensonde.adapters.torch.seams.vanishing import Ref
from tensonde.program.lines import CodeLine, line_of

STEPS = 200
"""Steps that are looked at; what is wrong in all of these is wrong. On a device fewer, since each look waits for it."""


class Track:
    """What happened to the gradients of one optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.ref = weakref.ref(optimizer)
        self.sample: weakref.ref[Tensor] | None = None
        self.held = False
        """There was a gradient after the last backward pass."""
        self.cleared = False
        self.closure = False
        self.steps = 0
        self.uncleared = 0
        self.emptied = 0
        self.without_backward = 0
        self.ever = False
        self.version = -1
        self.added = False
        """The last backward pass added to a gradient that was there, in place."""
        self._gradient: tuple[int, int] | None = None
        self.backward_place: CodeLine | None = None
        self.step_place: CodeLine | None = None
        """Where it was first stepped, and the backward pass before that."""

    def state(self) -> bool:
        """Whether there is a gradient now that is not all zero."""
        parameter = self.sample() if self.sample is not None else None
        if parameter is not None:
            return nonzero(parameter.grad)
        optimizer = self.ref()
        if optimizer is None:
            return False
        best: Tensor | None = None
        for group in optimizer.param_groups:
            for candidate in group["params"][:64]:
                if (best is None or candidate.numel() < best.numel()) and nonzero(candidate.grad):
                    best = candidate
        if best is not None:
            self.sample = Ref(best)
            self.ever = True
        return best is not None

    def gradient(self) -> tuple[int, int] | None:
        """Which gradient there is, and how often it has been written to."""
        parameter = self.sample() if self.sample is not None else None
        gradient = parameter.grad if parameter is not None else None
        return (id(gradient), gradient._version) if gradient is not None else None

    def before_backward(self) -> None:
        self._gradient = self.gradient()

    def after_backward(self) -> None:
        now, before = self.gradient(), self._gradient
        self.added |= now is not None and before is not None and now[0] == before[0] and now[1] > before[1]

    def weights(self) -> int:
        parameter = self.sample() if self.sample is not None else None
        return parameter._version if parameter is not None else -1


def nonzero(gradient: Tensor | None) -> bool:
    if gradient is None:
        return False
    if not READING.can_read(gradient):
        return True
    flat = gradient.detach()
    return bool(flat.any()) if flat.numel() <= 65536 else bool(flat.reshape(-1)[:65536].any())


class Sequence:
    def __init__(self) -> None:
        self.tracks: dict[int, Track] = {}
        self.backwards = 0
        self.wasted = 0
        self.wasted_line: dict[str, Any] | None = None
        self.since_step = 0
        self.wasted_since_step = 0
        self.windows: dict[str, int] = {}
        self.foreign_leaves = False
        """The loss has leaves that are no parameters and want a gradient: inputs, for an attack or a penalty."""
        self.steps = 0
        self.blind = False
        """The beginning of this step was not seen."""
        self.clear_place: CodeLine | None = None
        self.backward_place: CodeLine | None = None

    @property
    def attentive(self) -> bool:
        return self.steps < (EARLY if READING.used else STEPS) and not self.blind

    def track(self, optimizer: torch.optim.Optimizer) -> Track:
        number = KNOWN.number(optimizer)
        found = self.tracks.get(number)
        if found is None:
            found = self.tracks[number] = Track(optimizer)
        return found

    def before_backward(self) -> None:
        if not self.attentive:
            return
        held = [track for track in self.tracks.values() if track.held]
        lost = True
        for optimizer in KNOWN.mine()[:8]:
            track = self.track(optimizer)
            if not track.state():
                track.cleared = True
            elif track.held:
                lost = False
            track.before_backward()
        if held and self.since_step and lost and all(track.version == track.weights() for track in held):
            self.wasted += 1
            self.wasted_since_step += 1
            self.wasted_line = line_of(self.clear_place) or self.wasted_line

    def after_backward(self) -> None:
        self.backwards += 1
        if not self.attentive:
            return
        self.since_step += 1
        for optimizer in KNOWN.mine()[:8]:
            track = self.track(optimizer)
            track.held = track.state()
            track.ever |= track.held
            track.after_backward()
            track.version = track.weights()

    def before_step(self, optimizer: torch.optim.Optimizer, closure: bool, place: CodeLine | None = None) -> None:
        if not self.attentive:
            return
        track = self.track(optimizer)
        if track.step_place is None:
            track.step_place, track.backward_place = place, self.backward_place
        track.closure |= closure
        if closure:
            return
        now = track.state()
        if not now and track.held:
            track.emptied += 1
        elif now and track.steps and not track.cleared and self.since_step and track.added:
            track.uncleared += 1
        elif now and track.steps and not self.since_step:
            track.without_backward += 1

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.steps += 1
        if self.blind:
            self.blind = False
            self.forget()
            return
        if not self.attentive:
            return
        track = self.track(optimizer)
        track.steps += 1
        track.cleared = track.held = track.added = False
        if self.since_step:
            key = f"{self.since_step}/{self.wasted_since_step}"
            self.windows[key] = self.windows.get(key, 0) + 1
        for other in self.tracks.values():
            other.held = False
        self.since_step = self.wasted_since_step = 0

    def forget(self) -> None:
        """The coming steps are not seen: as at the end of a step."""
        for track in self.tracks.values():
            track.cleared = track.held = track.added = False
        self.since_step = self.wasted_since_step = 0

    def facts(self) -> dict[str, Any]:
        return {
            "backwards": self.backwards,
            "wasted": self.wasted,
            "wasted_line": self.wasted_line,
            "cleared_line": line_of(self.clear_place),
            "windows": self.windows,
            "foreign_leaves": self.foreign_leaves,
            "steps": self.steps,
        }
