"""Trainings in which no `torch.optim` optimizer says that it steps: the script updates the parameters itself, as by
`p.data.add_(-lr * p.grad)`, or the optimizer's step is part of compiled code.

Nothing tells us about such an update, and `p.data` leaves no trace in version counters. So one small parameter is the
witness: its value after a backward pass is compared with its value when the next pass, or the forward before it, begins.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.capture import capturing
from tensonde.adapters.torch.digests.parameters import ParameterDigests
from tensonde.adapters.torch.observers.sequence import STEPS, nonzero
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.vanishing import Ref
from tensonde.model.moment import Phase
from tensonde.program.lines import CodeLine, line_of

MOST_PASSES = 64
"""Backward passes of one step: where more add up and nothing is updated, they are no micro-batches."""
_WITNESS = 1 << 16


class ByHand:
    """Asked only while no optimizer is heard of. For `Parameters`, it is one: it has `param_groups`."""

    def __init__(self, state: RunState, parameters: ParameterDigests) -> None:
        self.state = state
        self._digests = parameters
        self.step_ended: Callable[[bool], None] = lambda behind: None
        """Called where a step ends. True: it ended at the mark."""
        self.marked: Callable[[], None] = lambda: None
        """Called where a step may turn out to have ended."""
        self.updated: Callable[[Any], None] = lambda holder: None
        """The script changed parameters. It is given something that has them as an optimizer would."""
        self.param_groups: list[dict[str, Any]] = [{"params": []}]
        self.updates = 0
        """Steps after which the witness had changed."""
        self.looked_at = self.uncleared = self.unchanged = 0
        """Of the first steps, as many as are looked at closely."""
        self._leaves: list[Ref[Tensor]] = []
        self._witness: weakref.ref[Tensor] | None = None
        self._holder: tuple[weakref.ref[nn.Module], str] | None = None
        """The module whose parameter the witness is, and its name there."""
        self._value: Tensor | None = None
        self._version = 0
        self._gradient: tuple[int, int] | None = None
        """Which gradient the witness had before the first pass of this step, if one that was not zero."""
        self._before: tuple[int, int] | None = None
        """Which gradient it had before this pass."""
        self._added = False
        """The passes of this step added to the gradients of the last."""
        self._fed = False
        """The witness had a gradient after the last pass."""
        self._marked = False
        """The step may turn out to have ended where the last forward began."""
        self._called = False
        """A forward was noticed since the last pass."""
        self._passes = 0
        self._named = -1
        self._tried = 0
        self.backward_place: CodeLine | None = None

    # -- backward passes -------------------------------------------------------------------------

    def met(self, leaves: list[Tensor]) -> None:
        """The leaves of a loss, of which some may belong to no module."""
        self._leaves = [Ref(leaf) for leaf in leaves if leaf.requires_grad][:64]

    def pass_begins(self) -> None:
        """The forward before may have gone by unnoticed: where modules rest, or there are none."""
        state = self.state
        if state.session.steps.before_forward():
            if self._marked and self._state() == "cleared":  # after the forward, which was that of the next step
                self.finish()
                self.step_ended(True)
            elif not self._called and self._over():
                self.finish()
                self.step_ended(False)
        witness = self._witness() if self._witness is not None else None
        gradient = witness.grad if witness is not None else None
        self._before = (id(gradient), gradient._version) if gradient is not None else None
        if not self._passes and self.looked_at < STEPS:
            self._gradient = self._before if nonzero(gradient) else None

    def pass_ends(self) -> None:
        state = self.state
        self._passes += 1
        self._marked = self._called = False
        witness = self._witness() if self._witness is not None else None
        if witness is None or (witness.grad is None and self._fed):
            witness = self._choose()
        elif witness.grad is not None and self._before == (id(witness.grad), witness.grad._version):
            witness = None  # the pass did not reach it: the script may have put another parameter in its place
            self._forget()
            witness = self._choose()
        if witness is None:
            return
        gradient, before = witness.grad, self._gradient
        self._added |= (
            before is not None and gradient is not None and id(gradient) == before[0] and gradient._version > before[1]
        )
        self._fed = gradient is not None
        self._value, self._version = witness.detach().clone(), witness._version
        if not state.light:
            self._gather()
            mark = state.session.clock()
            self._digests.before(self, closure=False)
            state.set_phase(Phase.FORWARD)
            state.session.spent_since(mark)

    def _choose(self) -> Tensor | None:
        """The smallest that has a gradient; another one where that has never changed."""
        names = self.state.parameters.names
        held = {
            id(parameter): (parameter, weakref.ref(module), name)
            for root in self.state.roster.roots.values()
            for module in root.modules()
            for name, parameter in module._parameters.items()
            if parameter is not None and not parameter.is_meta
        }
        if held.keys() - names.keys():  # put into a module after its first call
            self._adopt()
        found = {key: parameter for key, (parameter, _, _) in held.items() if key in names}
        # What has a name and is held no more was replaced by another one.
        found |= {id(leaf): leaf for ref in self._leaves if (leaf := ref()) is not None and id(leaf) not in names}
        small = [p for p in found.values() if p.is_leaf and p.requires_grad and 0 < p.numel() <= _WITNESS]
        # With torch.autograd.grad, gradients are nowhere to be found.
        fit = [p for p in small if nonzero(p.grad)] or [p for p in small if p.grad is None]
        if not fit:
            return None
        witness = sorted(fit, key=Tensor.numel)[self._tried % len(fit)]
        self._witness = Ref(witness)
        self._holder = held[id(witness)][1:] if id(witness) in held else None
        return witness

    def _forget(self) -> None:
        """Parameters that only Tensonde still holds are gone after this; those that stand in their place get names."""
        self.param_groups, self._named, self._value = [{"params": []}], -1, None
        self._digests.plans.pop(id(self), None)
        self._adopt()

    def _adopt(self) -> None:
        parameters = self.state.parameters
        for name, root in list(self.state.roster.roots.items()):
            parameters.adopt(root, parameters.prefix_of(name))

    def _gather(self) -> None:
        names = self.state.parameters.names
        if self._named != len(names):
            self._named = len(names)
            self.param_groups = [{"params": [p for _, p in self.state.parameters.live() if p.requires_grad]}]

    # -- the end of a step -----------------------------------------------------------------------

    def forward_begins(self) -> None:
        """After a backward pass: this is the next step's forward, unless gradients add up over several. So they may where the
        script has neither updated nor cleared anything so far."""
        self._called = True
        if self._over():
            self.finish()
            self.step_ended(False)
        elif not self._marked:
            self._marked = True
            self.marked()

    def _over(self) -> bool:
        return self._passes >= MOST_PASSES or self._state() != "same"

    def _state(self) -> str:
        """What became of the witness since the last backward pass: `changed`, `cleared` gradient, the `same`, or `unknown`."""
        witness = self._witness() if self._witness is not None else None
        if witness is None or self._value is None or capturing():
            return "unknown"
        module = self._holder[0]() if self._holder is not None else None
        if module is not None and self._holder is not None and module._parameters.get(self._holder[1]) is not witness:
            return "changed"  # another one stands in its place
        if witness.device.type != "cpu" and witness._version != self._version:
            return "changed"  # without a look at values, which would wait for the device
        if witness.shape != self._value.shape or not torch.equal(witness.detach(), self._value):
            return "changed"
        return "same" if nonzero(witness.grad) else "cleared"

    def finish(self) -> None:
        """The step is over: what became of the parameters."""
        state, changed = self.state, self._state()
        self.updates += changed == "changed"
        if changed in ("same", "cleared") and not self.updates:
            self._tried += 1
            self._witness = None
        if self._passes and self._fed and changed != "unknown" and self.looked_at < STEPS:
            self.looked_at += 1
            self.unchanged += changed != "changed"
            self.uncleared += changed == "changed" and self._added
        self._passes, self._added, self._value, self._gradient = 0, False, None, None
        self._marked = False
        if state.light or not self.param_groups[0]["params"]:
            return
        if self.updates or not state.step:
            mark = state.session.clock()
            self._digests.after(self, closure=False)
            state.session.spent_since(mark)
        if changed == "changed":
            self.updated(SimpleNamespace(param_groups=self._each()))

    def _each(self) -> list[dict[str, Any]]:
        return [{"params": [parameter]} for parameter in self.param_groups[0]["params"]]

    def facts(self) -> dict[str, Any]:
        return {
            "updates": self.updates,
            "looked_at": self.looked_at,
            "uncleared": self.uncleared,
            "unchanged": self.unchanged,
            "parameters": len(self.param_groups[0]["params"]),
            "backward_line": line_of(self.backward_place),
        }
