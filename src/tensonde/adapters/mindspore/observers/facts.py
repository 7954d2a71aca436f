"""What is known of a training beside its tensors, gathered at next to no cost: facts.json of a recording.

The schema is `model/facts.py`; what MindSpore does not show is left out, and rules take it for "not known". Every method is called
by the training thread.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mindspore

from tensonde.adapters.divisions import divisions
from tensonde.adapters.made_inside import MadeInside
from tensonde.adapters.mindspore.observers.clipping import Clipping
from tensonde.adapters.mindspore.observers.feeding import LOADERS, LOADS, Batches
from tensonde.adapters.mindspore.observers.holdings import Holdings, looked_at
from tensonde.adapters.mindspore.observers.modes import RootModes
from tensonde.adapters.mindspore.observers.noise import Noise
from tensonde.adapters.mindspore.observers.origins import KNOWN, groups_of
from tensonde.adapters.mindspore.observers.piling import Piling
from tensonde.adapters.mindspore.observers.schedules import FORMULAS, is_schedule
from tensonde.adapters.mindspore.observers.settings import settings_of
from tensonde.adapters.mindspore.run.entry import Entry
from tensonde.adapters.mindspore.run.naming import cells_in, parameters_in
from tensonde.adapters.mindspore.tensors import elements, is_floating, is_tensor, joined, shape_of, tensors_in
from tensonde.model import versions
from tensonde.model.moment import Phase
from tensonde.program.frames import USER, owner_of, user_place
from tensonde.program.habits import result_line
from tensonde.program.lines import CodeLine, line_at, line_of
from tensonde.program.reordering import apart

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative

WRITE_AFTER = (50, 1000)
LOOK_AFTER = (1, 20)
MOST = 2000
SCALED = 8
"""Backward passes whose gradients are kept until the optimizer steps."""
NO_MEMORY = "it cannot be measured for MindSpore"


class Facts:
    def __init__(self, training: PyNative) -> None:
        self.training = training
        self.holdings = Holdings(training)
        self.batches = Batches()
        self.clipping = Clipping()
        self.piling = Piling()
        self.noise = Noise(training)
        self._backwards = 0
        self._backward_place: CodeLine | None = None
        self._reached: set[int] = set()
        self._raw: Sequence[Any] = ()
        self._loss: Any = None
        self.modes: dict[int, RootModes] = {}
        self._optimizers: dict[int, dict[str, Any]] = {}
        self._steps: dict[int, int] = {}
        self._had_gradients: set[int] = set()
        self._modules: dict[str, dict[str, Any]] = {}
        self.made = MadeInside(lambda cell: bool(parameters_in(cell)))
        self._writes = 0
        self._leaf_loss: dict[str, Any] | None = None
        self._beside_loss: dict[str, Any] | None = None

    # -- what happens ----------------------------------------------------------------------------

    def root_called(self, entry: Entry, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._modes(entry, root).called(root, self.training.step, grad=self.training.grad_on)
        if self.training.grad_on:
            self.batches.given(entry.name, args, kwargs, self.training.step)
        self.noise.root_called(entry.name, root, grad=self.training.grad_on)

    def cell_made(self, cell: Any, place: CodeLine | None) -> None:
        """A cell is made while another one runs."""
        training = self.training
        if training.phase is not Phase.BACKWARD:
            self.made.note(cell, training.stack[-1].name, place, training.step)

    def trained_compiled(self, root: Any) -> None:
        """What is compiled has trained this root."""
        entry = self.training.roster.entries.get(id(root))
        if entry is not None:
            self._modes(entry, root).called(root, self.training.step, grad=True)

    def _modes(self, entry: Entry, root: Any) -> RootModes:
        modes = self.modes.get(id(root))
        if modes is None or modes.ref() is not root:
            modes = self.modes[id(root)] = RootModes(entry.name, root)
        return modes

    def loss_given(self, fn: Any, loss: Any, *, alone: bool) -> None:
        """`fn` is to be differentiated, and gave this loss. One that leads back to nothing was made anew of numbers. Unless it is differentiated
        `alone`, all that is given beside it is added to it."""
        given = tensors_in(loss)
        if self._backwards > SCALED or not given:
            return
        if self._leaf_loss is None and not joined(given[0]):
            self._leaf_loss = _result_line(fn)
        beside = [tensor for tensor in given[1:] if is_floating(tensor) and joined(tensor)]
        if not alone and elements(given[0]) == 1 and any(elements(tensor) > 1 for tensor in beside):
            shapes = [list(shape_of(tensor)) for tensor in beside[:8]]
            self._beside_loss = self._beside_loss or {"shapes": shapes, "line": _result_line(fn)}

    def seeded(self, seed: Any) -> None:
        """The backward pass that comes begins with this in the place of ones."""
        if self._backwards < SCALED:
            self.clipping.seed = seed

    def differentiated(self, weights: Sequence[Any], loss: Any, gradients: Sequence[Any]) -> None:
        """A backward pass of `loss` gave the gradients of these."""
        self._backwards += 1
        if self._backwards <= SCALED:
            self._raw, self._loss = gradients, loss
        self.piling.differentiated(weights, gradients)
        if self._backward_place is None:
            self._backward_place = user_place(sys._getframe(1))
        if self._backwards <= LOOK_AFTER[-1]:
            self._reached |= set(map(id, weights))

    def before_optimizer(self, optimizer: Any, gradients: Sequence[Any]) -> None:
        number = KNOWN.number(optimizer)
        count = self._steps.get(number, 0)
        self.clipping.optimizer_steps(optimizer, self._loss, gradients, self._raw)
        self.piling.optimizer_steps(optimizer, gradients)
        self._raw, self._loss = (), None
        if any(map(is_tensor, gradients)):
            self._had_gradients.add(number)
        if looked_at(count):
            self.holdings.before_step(optimizer, gradients, count)

    def after_optimizer(self, optimizer: Any) -> None:
        number = KNOWN.number(optimizer)
        count = self._steps.get(number, 0)
        if looked_at(count):
            self.holdings.after_step(count)
        self.optimizer_stepped(optimizer)
        if count in LOOK_AFTER:
            self.look()
        step = self.training.step
        if step < 64 or step % 16 == 0:
            for modes in self.modes.values():
                if modes.trained_by(optimizer):
                    modes.stepped(step)

    def optimizer_stepped(self, optimizer: Any) -> None:
        number = KNOWN.number(optimizer)
        self._steps[number] = self._steps.get(number, 0) + 1
        LOADERS.stepped()

    def loaded(self, network: Any, state: dict[str, Any], place: CodeLine | None) -> None:
        """A checkpoint was loaded into the network."""
        own = {id(p) for p in parameters_in(network)}
        trained = (one for one in KNOWN.optimizers() if own.intersection(map(id, one.parameters)))
        LOADS.loaded(network, state, max((self._steps.get(KNOWN.number(one), 0) for one in trained), default=0), place)

    def finished_step(self, step: int) -> None:
        if self._writes < len(WRITE_AFTER) and step >= WRITE_AFTER[self._writes]:
            self._writes += 1
            self.write()

    # -- writing ---------------------------------------------------------------------------------

    def write(self) -> None:
        try:
            self.training.session.writer.facts(self.gather())
        except Exception as problem:
            self.training.contain("writing the facts", problem)

    def look(self) -> None:
        """Takes down what is known now: models and optimizers may be gone when the program ends."""
        roots = list(self.training.roster.roots.values())
        registered = {id(p) for root in roots for p in parameters_in(root)}
        for optimizer in KNOWN.optimizers()[:32]:
            self._optimizers[KNOWN.number(optimizer)] = _optimizer(optimizer, registered)
            if self._reached.intersection(map(id, optimizer.parameters)):
                self._had_gradients.add(KNOWN.number(optimizer))
        self.holdings.look()
        inside = {id(cell) for root in roots for _, cell in cells_in(root)}
        for entry in list(self.training.roster.entries.values())[:MOST]:
            cell = entry.ref()
            if cell is not None:
                self._modules[entry.name] = _cell(entry, cell, hidden=id(cell) not in inside)

    def gather(self) -> dict[str, Any]:
        self.look()
        options = self.training.session.options
        places = {number: k for k, number in enumerate(self._optimizers)}
        return {
            "schema": versions.FACTS,
            "steps": self.training.step,
            "compiled": bool(self.training.compiled),
            "random": {"seed": mindspore.get_seed(), "deterministic": False},
            "dtype": "float32",
            "optimizers": [
                {
                    **known,
                    "steps": self._steps.get(number, 0),
                    "looked_at": min(self._steps.get(number, 0), 200),
                    "uncleared": min(self._steps.get(number, 0), 200) if self.piling.piles_up(number) else 0,
                    "added_up": self.piling.line(number),
                    "had_gradients": number in self._had_gradients,
                }
                for number, known in self._optimizers.items()
            ],
            "schedulers": _schedules(places, self._steps),
            "parameters": self.holdings.facts(places),
            "modules": self._modules,
            "loaders": LOADERS.facts(),
            "sequence": {
                "backwards": self._backwards,
                "steps": sum(self._steps.values()),
                "backward_line": line_of(self._backward_place),
            },
            "batches": self.batches.facts(),
            "clipping": self.clipping.facts(),
            "noise": self.noise.facts(),
            "made_in_forward": self.made.facts(),
            "leaf_loss": self._leaf_loss,
            "beside_loss": self._beside_loss,
            "divisions": divisions(KNOWN.files()),
            "orders_apart": apart(tuple(KNOWN.files())),
            "loaded_over": LOADS.facts(),
            "roots": {modes.name: modes.facts() for modes in list(self.modes.values())[:64]},
            "answers": self.training.laboratory.inquiry.facts(),
            "memory": {"why": NO_MEMORY} if options.memory else None,
        }


def _result_line(fn: Any) -> dict[str, Any] | None:
    """The line of the program's that computes what a function or cell gives."""
    code = getattr(inspect.unwrap(getattr(fn, "construct", fn)), "__code__", None)
    if code is None or owner_of(code) != USER:
        return None
    return line_at(code.co_filename, result_line(code) or code.co_firstlineno)


def _schedules(places: dict[int, int], steps: dict[int, int]) -> list[dict[str, Any]]:
    """The schedules of optimizers; `places` and `steps` by their numbers. MindSpore asks a schedule at every step."""
    found = []
    for optimizer in KNOWN.optimizers():
        number, rate = KNOWN.number(optimizer), getattr(optimizer, "learning_rate", None)
        if not is_schedule(rate) or number not in places:
            continue
        own = type(rate).__name__ in FORMULAS
        base = getattr(rate, "learning_rate", None)
        found.append(
            {
                "type": type(rate).__name__ if own else f"the schedule of {type(optimizer).__name__}",
                "made": KNOWN.made.line(rate) or KNOWN.made.line(optimizer),
                "optimizer": places[number],
                "base_lrs": [base] if isinstance(base, float) else [],
                "steps": steps.get(number, 0),
            }
        )
    return found


def _optimizer(optimizer: Any, registered: set[int]) -> dict[str, Any]:
    groups = groups_of(optimizer)
    held = [p for group in groups for p in group["params"]]
    return {
        "type": type(optimizer).__name__,
        "made": KNOWN.made.line(optimizer),
        "groups": [_group(group) for group in groups[:64]],
        "parameters": len(held),
        "unknown": [list(p.shape) for p in held if id(p) not in registered][:200],
    }


def _group(group: dict[str, Any]) -> dict[str, Any]:
    plain = {
        k: v for k, v in group.items() if isinstance(v, int | float | str) or (k == "betas" and isinstance(v, tuple))
    }
    return {"parameters": len(group["params"]), **plain}


def _cell(entry: Entry, cell: Any, *, hidden: bool) -> dict[str, Any]:
    code = getattr(inspect.unwrap(type(cell).construct), "__code__", None)
    return {
        "type": entry.type,
        "library": type(cell).__module__.startswith("mindspore."),
        "installed": code is not None and owner_of(code) != USER,
        "made": KNOWN.made.line(cell),
        "cast": KNOWN.cast.line(cell),
        "training": bool(cell.training),
        "hidden": hidden,
        "settings": settings_of(cell),
    }
