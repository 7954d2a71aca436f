"""What runs compiled: a cell in GRAPH_MODE, a function or cell under `jit`.

Python sees nothing of the inside but what `graphs/taps` hands out, and this is said once. Between two calls the
parameters and the loss are at hand: they are digested, and a step ends where an optimizer has counted one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tensonde.adapters.mindspore.graphs.export import Export
from tensonde.adapters.mindspore.graphs.rehearsal import Rehearsal
from tensonde.adapters.mindspore.graphs.taps import Taps
from tensonde.adapters.mindspore.observers.origins import KNOWN, groups_of
from tensonde.adapters.mindspore.run import optimizers
from tensonde.adapters.mindspore.tensors import elements, is_floating, is_tensor, tensors_in, values_of
from tensonde.model.moment import Phase

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative

WHY = "runs compiled: the loss and the parameters are watched between its calls"
TAPPED = "runs compiled: of its inside, only the cells that were asked for are watched, not its ops"


class Compiled:
    def __init__(self, training: PyNative) -> None:
        self.training = training
        self._counts: dict[int, Any] = {}
        self._rates: dict[int, list[Any]] = {}
        self.export = Export(training)
        self.taps = Taps(training)
        self.rehearsal = Rehearsal(training)

    def note(self, name: str) -> None:
        """It is compiled: the summary says so."""
        self.training.compiled[name] = TAPPED if self.taps.there else WHY

    def calling(self) -> None:
        """A compiled call begins: where the optimizers stand."""
        self.training.forward_begins()
        self.training.session.steps.begun = True
        if self.training.entry_pending:
            self.training.entry_pending = False
            self.training.stops.stop("entry")
        self._counts = {id(optimizer): _count(optimizer) for optimizer in KNOWN.optimizers()}
        self._rates = {id(one): [group.get("lr") for group in groups_of(one)] for one in KNOWN.optimizers()}
        self.export.begin()
        self.taps.put()
        self.rehearsal.calling()

    def called(self, out: Any, fn: Any, again: partial[Any], *, gradients: bool) -> None:
        """It gave `out`, the loss first if an optimizer has stepped meanwhile. `gradients`: it is a compiled `value_and_grad`. `again` runs the
        Python of what was called, `fn`."""
        training = self.training
        stepped = [one for one in KNOWN.optimizers() if _count(one) != self._counts.get(id(one))]
        if not stepped and not gradients:
            return
        given = [tensor for tensor in tensors_in(out) if is_floating(tensor)]
        losses = [tensor for tensor in given if elements(tensor) == 1] or given[: is_tensor(out)]
        if losses:
            training.backward_ends(training.backward_begins(losses[0]))
        for root in self.rehearsal.roots:
            training.facts.trained_compiled(root)
        self.rehearsal.stepped(fn, again)
        for optimizer in stepped:
            if training.session.steps.before_optimizer(id(optimizer)):
                training.stepping.finish(behind=True)
            training.rates = self._rates.get(id(optimizer), [])
            optimizers.stepped(training, optimizer)
        training.set_phase(Phase.FORWARD)


def _count(optimizer: Any) -> Any:
    """A number that changes with each step of the optimizer."""
    for name in ("global_step", "state_step"):
        held = getattr(optimizer, name, None)
        values = values_of(held) if is_tensor(held) else None
        if values is not None and values.size:
            return values.reshape(-1)[0].item()
    first = values_of(next(iter(optimizer.parameters)))
    return first.reshape(-1)[:64].tobytes() if first is not None else None
