"""The order of backward passes, clearing and optimizer steps, by what became of the gradients.

Looks at the state of one small gradient per optimizer, not at calls of `zero_grad`: setting `p.grad = None`
clears as well, and `zero_grad` of the wrong optimizer does not.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.capture import capturing
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.observers.reading import READING
from tensonde.adapters.torch.seams.vanishing import Ref
from tensonde.adapters.torch.tensors import is_dense, is_plain
from tensonde.program.lines import CodeLine, line_of

STEPS = 200
"""Steps that are looked at; what is wrong in all of these is wrong."""
FEW = 16
"""On a device, where each look is a launch and a copy."""


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
        self.passed = False
        """There was a backward pass since its last step, whatever other optimizers did."""
        self.added = False
        """The last backward pass added to a gradient that was there, in place."""
        self.before: tuple[int, int] | None = None
        """The gradient before the last backward pass."""
        self.backward_place: CodeLine | None = None
        self.step_place: CodeLine | None = None
        """Where it was first stepped, and the backward pass before that."""

    def state(self) -> bool | Tensor:
        """Whether there is a gradient now that is not all zero; on a device a tensor that will tell."""
        parameter = self.sample() if self.sample is not None else None
        if parameter is not None:
            return _told(parameter.grad)
        optimizer = self.ref()
        if optimizer is None:
            return False
        best: Tensor | None = None
        for group in optimizer.param_groups:
            for candidate in group["params"][:64]:
                if (best is None or candidate.numel() < best.numel()) and _may_be_nonzero(candidate.grad):
                    best = candidate
        if best is None:
            return False
        self.sample = Ref(best)
        return _told(best.grad)

    def gradient(self) -> tuple[int, int] | None:
        """Which gradient there is, and how often it has been written to."""
        parameter = self.sample() if self.sample is not None else None
        gradient = parameter.grad if parameter is not None else None
        return (id(gradient), gradient._version) if gradient is not None else None

    def weights(self) -> int:
        parameter = self.sample() if self.sample is not None else None
        return parameter._version if parameter is not None else -1


def _told(gradient: Tensor | None) -> bool | Tensor:
    if gradient is None or not is_dense(gradient) or capturing():
        return gradient is not None
    found = gradient.detach().reshape(-1)[:65536].any()
    return bool(found) if gradient.device.type == "cpu" else found


def _may_be_nonzero(gradient: Tensor | None) -> bool:
    """Of one on a device it is not asked, since many are."""
    return gradient is not None and (not is_plain(gradient) or bool(_told(gradient)))


def nonzero(gradient: Tensor | None) -> bool:
    """Here and now; True where that cannot be told."""
    if gradient is None:
        return False
    return not READING.can_read(gradient) or bool(_told(gradient))


class Sequence:
    def __init__(self) -> None:
        self.tracks: dict[int, Track] = {}
        self.backwards = 0
        self.wasted = 0
        self.wasted_line: dict[str, Any] | None = None
        self.since_step = 0
        """Backward passes since the last step."""
        self.passes = 0
        """The same, as far as the device has told."""
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
        return self.steps < (FEW if READING.used else STEPS) and not self.blind

    def track(self, optimizer: torch.optim.Optimizer) -> Track:
        number = KNOWN.number(optimizer)
        found = self.tracks.get(number)
        if found is None:
            found = self.tracks[number] = Track(optimizer)
        return found

    def before_backward(self) -> None:
        if not self.attentive:
            return
        tracks = [self.track(optimizer) for optimizer in KNOWN.mine()[:8]]
        gradients = [track.gradient() for track in tracks]
        versions = {id(track): track.weights() for track in self.tracks.values()}
        self._ask(tracks, lambda flags: self._clear_or_not(tracks, flags, gradients, versions))

    def _clear_or_not(
        self, tracks: list[Track], flags: list[bool], gradients: list[tuple[int, int] | None], versions: dict[int, int]
    ) -> None:
        held = [track for track in self.tracks.values() if track.held]
        lost = True
        for track, full, gradient in zip(tracks, flags, gradients, strict=True):
            if not full:
                track.cleared = True
            elif track.held:
                lost = False
            track.before = gradient
        if held and self.passes and lost and all(track.version == versions.get(id(track)) for track in held):
            self.wasted += 1
            self.wasted_since_step += 1
            self.wasted_line = line_of(self.clear_place) or self.wasted_line

    def after_backward(self) -> None:
        self.backwards += 1
        if not self.attentive:
            return
        self.since_step += 1
        tracks = [self.track(optimizer) for optimizer in KNOWN.mine()[:8]]
        now = [(track.gradient(), track.weights()) for track in tracks]
        self._ask(tracks, lambda flags: self._added(tracks, flags, now))

    def _added(self, tracks: list[Track], flags: list[bool], found: list[tuple[tuple[int, int] | None, int]]) -> None:
        self.passes += 1
        for track, full, (now, version) in zip(tracks, flags, found, strict=True):
            track.held, track.passed = full, True
            track.ever |= full
            before = track.before
            track.added |= now is not None and before is not None and now[0] == before[0] and now[1] > before[1]
            track.version = version

    def before_step(self, optimizer: torch.optim.Optimizer, closure: bool, place: CodeLine | None = None) -> None:
        if not self.attentive:
            return
        track = self.track(optimizer)
        if track.step_place is None:
            track.step_place, track.backward_place = place, self.backward_place
        track.closure |= closure
        if not closure:
            self._ask([track], lambda flags: self._about_to_step(track, now=flags[0]))

    def _about_to_step(self, track: Track, *, now: bool) -> None:
        track.ever |= now
        if not now and track.held:
            track.emptied += 1
        elif now and track.steps and not track.cleared and track.passed and track.added:
            track.uncleared += 1
        elif now and track.steps and not track.passed:
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
        self.since_step = 0
        READING.after(lambda: self._stepped(track))

    def _stepped(self, track: Track) -> None:
        track.steps += 1
        track.cleared = track.held = track.added = track.passed = False
        if self.passes:
            key = f"{self.passes}/{self.wasted_since_step}"
            self.windows[key] = self.windows.get(key, 0) + 1
        for other in self.tracks.values():
            other.held = False
        self.passes = self.wasted_since_step = 0

    def forget(self) -> None:
        """The coming steps are not seen: as at the end of a step."""
        self.since_step = 0
        READING.after(self._forget)

    def _forget(self) -> None:
        for track in self.tracks.values():
            track.cleared = track.held = track.added = track.passed = False
        self.passes = self.wasted_since_step = 0

    def _ask(self, tracks: list[Track], then: Callable[[list[bool]], None]) -> None:
        """Calls `then` with the states of now, behind the program where they are on a device."""
        states = [track.state() for track in tracks]
        late = [state for state in states if isinstance(state, Tensor)]

        def told(*flags: Tensor) -> None:
            given = iter(flags)
            then([bool(next(given)) if isinstance(state, Tensor) else state for state in states])

        if late:
            self.blind |= not READING.later(late, told)
        else:
            READING.after(told)

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
