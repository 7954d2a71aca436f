"""Watches the memory of the first steps for `tensonde check --memory`. In the last of them, half a batch shows what depends on its size."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.memory.account import Account, devices
from tensonde.adapters.torch.memory.course import course_of
from tensonde.adapters.torch.memory.history import History
from tensonde.adapters.torch.memory.keepers import keepers
from tensonde.adapters.torch.memory.ledger import Ledger
from tensonde.adapters.torch.memory.scaling import NotKnown, Scaling
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.replay.replay import Replay
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.tensors import gradient_of, tensors_in
from tensonde.program.frames import foreign_frames
from tensonde.program.values import FrameState

_push = torch._C._push_on_torch_dispatch_stack
log = logging.getLogger("tensonde.session")


class MemoryWatch:
    """Belongs to the training thread."""

    def __init__(self, state: RunState, replay: Replay) -> None:
        options = state.session.options
        self._state = state
        self.history = History()
        self._last = (options.steps or 4) - 1
        """The step in which the batch is halved; what it takes itself does not count."""
        self._ends: list[int] = []
        self._keepers: list[dict[str, Any]] = []
        self._fact: dict[str, Any] | None = None
        self._why = ""
        self._ledger: Ledger | None = None
        self._scaling = Scaling(state, replay, self._name_of)
        if options.memory:
            self._begin()

    def _begin(self) -> None:
        """The ledger lies below all modes of the user."""
        if KNOWN.compiled:
            self._why = "the training is compiled, and what compiled code takes is not seen"
            return
        ledger = self._ledger = Ledger(self._name_of)
        ledger.phase = lambda: self._state.phase
        _push(ledger)

    def _name_of(self, module: nn.Module) -> tuple[str, str]:
        entry = self._state.roster.entries.get(id(module))
        return (entry.name if entry is not None else type(module).__name__), type(module).__name__

    # -- steps -----------------------------------------------------------------------------------

    def wants(self, step: int) -> bool:
        """Whether the tape must have this step."""
        return self._ledger is not None and step == self._last

    def before_optimizer(self) -> None:
        """The gradients are there."""
        if not self.wants(self._state.step) or self._why or self._scaling.batch:
            return
        try:
            self._scaling.measure()
        except NotKnown as why:
            self._why = str(why)

    def step_ends(self) -> None:
        ledger = self._ledger
        if ledger is None or not ledger.open:
            return
        step = self._state.step
        state = self._state.roster
        live = [parameter for _, parameter in self._state.parameters.live()]
        held = [p for o in list(KNOWN.optimizers) for group in o.param_groups for p in group["params"]]
        ledger.is_use([b for root in list(state.roots.values()) for b in root.buffers()], "buffers")
        ledger.is_use([g for p in (*live, *held) if (g := gradient_of(p)) is not None], "gradients")
        ledger.is_use(list(_states()), "optimizer")
        ledger.is_use([*live, *held], "parameters")
        self._ends.append(len(ledger.log))
        ledger.begin_step(step + 1)
        if step + 1 >= self._last:
            self._keepers = self._kept(ledger)
            ledger.open = False

    def _kept(self, ledger: Ledger) -> list[dict[str, Any]]:
        """Variables that hold what earlier steps have made."""
        wanted = set()
        for identity, number in ledger.living():
            held = ledger.held[number]
            if held.use is None and held.died is None and held.step < self._state.step and held.op != "before":
                wanted.add(identity)
        if not wanted:
            return []
        places = [FrameState(frame, frame.f_lineno, frame.f_lasti) for frame in foreign_frames(sys._getframe(1))]
        return keepers([place for place in places if place.is_user], set(), wanted=wanted)

    # -- what came of it -------------------------------------------------------------------------

    def facts(self) -> dict[str, Any] | None:
        """None: nobody asked."""
        if self._fact is None or not self._fact.get("batch"):
            self._fact = self._found()
        return self._fact

    def _found(self) -> dict[str, Any] | None:
        if self._ledger is None:
            return {"why": self._why} if self._why else None
        if self._ledger.failed is not None:
            return {"why": f"watching failed: {self._ledger.failed}"}
        if not self._ends:
            return {"why": "no step has ended"}
        accounts = [Account(self._ledger, device, self._ends) for device in devices(self._ledger)]
        accounts.sort(key=lambda account: (account.device == "cpu", -account.peak))
        first, scaling = accounts[0], self._scaling
        growth = _growth([step["left"] for step in first.steps()]) if self._keepers else 0
        return {
            "device": first.device,
            "others": {account.device: account.peak for account in accounts[1:]},
            "peak": first.peak,
            **first.where(),
            "uses": first.uses(),
            "parts": first.parts(),
            "lines": first.lines(),
            "steps": first.steps(),
            "course": course_of(first),
            "growth": growth,
            "keepers": self._keepers if growth else [],
            "batch": scaling.batch,
            "envelope": first.envelope(scaling.batch, scaling.share) if scaling.batch else [],
            "why": self._why,
        }


def _growth(left: list[int]) -> int:
    """What every step adds, if each does; the first two make gradients and state of optimizers."""
    more = [after - before for before, after in pairwise(left[1:])]
    return min(more) if more and min(more) > 0 else 0


def _states() -> Iterable[Tensor]:
    for optimizer in list(KNOWN.optimizers):
        for state in list(optimizer.state.values()):
            yield from tensors_in(state)
