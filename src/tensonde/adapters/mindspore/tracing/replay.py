"""A step that went wrong is run again, op by op, to find where: its forward and backward pass, on the same inputs.

MindSpore differentiates a function of its inputs, so a pass can be run again as it stands: parameters have not been updated yet when the
backward pass ends. What the program's code changes meanwhile (attributes, lists, counters, statistics of norms, random generators) is put
back. Random numbers of a CPU cannot be drawn again: dropout is left out, and a run that draws others, writes files or starts processes
is given up; then the following step is traced instead.
"""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Iterable, Iterator, Sequence
from types import CellType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import mindspore
import numpy as np
from mindspore import amp, nn

from tensonde.adapters.mindspore.run.naming import cells_in, own_parameters
from tensonde.adapters.mindspore.tensors import is_parameter, is_tensor, tensors_in, values_of, write
from tensonde.adapters.mindspore.tracing import dispatch
from tensonde.adapters.mindspore.tracing.names import draws
from tensonde.adapters.mindspore.tracing.tracer import Tracer
from tensonde.adapters.restore.deeds import no_deeds
from tensonde.adapters.restore.holders import DictHolder, Holder, ListHolder, SetHolder
from tensonde.model.moment import Phase
from tensonde.program.frames import owner_of_file
from tensonde.session.session import StopTraining

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative

DEEPEST = 5
MOST_HELD = 20_000


class Refused(Exception):
    """The run would do what cannot be undone."""


class State:
    """What a run may change, as it is now."""

    def __init__(self, training: PyNative, fn: Any, parameters: Sequence[Any] = ()) -> None:
        """`parameters`: those that are changed meanwhile, beside what `fn` and the roots hold."""
        self._holders: list[Holder] = []
        self._seen: set[int] = set()
        self._parameters: list[tuple[Any, Any]] = []
        self._names: list[tuple[Any, str]] = []
        """A slice of a `CellList` gives its parameters other names."""
        self._generators = (random.getstate(), np.random.get_state(), mindspore.get_rng_state())
        self._keep(parameters)
        self._reach(fn, DEEPEST)
        for root in list(training.roster.roots.values()):
            self._reach(root, DEEPEST)

    def _reach(self, thing: Any, deepest: int) -> None:
        if deepest < 0 or id(thing) in self._seen or len(self._seen) > MOST_HELD:
            return
        if isinstance(thing, nn.Cell):
            self._seen.add(id(thing))
            self._cell(thing)
        elif isinstance(thing, MethodType):
            self._reach(thing.__func__, deepest)
            self._reach(thing.__self__, deepest)
        elif isinstance(thing, FunctionType):
            self._seen.add(id(thing))
            self._function(thing, deepest)
        elif type(thing) in (dict, list, set):
            self._seen.add(id(thing))
            self._container(thing, deepest)
        elif is_parameter(thing):
            self._keep([thing])
        elif _is_users(thing) or isinstance(thing, amp.LossScaler):
            self._seen.add(id(thing))
            self._container(vars(thing), deepest)

    def _cell(self, cell: Any) -> None:
        for _, part in cells_in(cell):
            self._seen.add(id(part))
            self._holders.append(DictHolder(vars(part)))
            self._keep(parameter for _, parameter in own_parameters(part))
            for held in list(vars(part).values()):
                if type(held) in (dict, list, set) or isinstance(held, amp.LossScaler) or _is_users(held):
                    self._reach(held, 2)

    def _keep(self, parameters: Iterable[Any]) -> None:
        for parameter in parameters:
            values = values_of(parameter) if id(parameter) not in self._seen else None
            self._seen.add(id(parameter))
            self._names.append((parameter, parameter.name))
            if values is not None:
                self._parameters.append((parameter, values.copy()))

    def _function(self, function: FunctionType, deepest: int) -> None:
        for cell in function.__closure__ or ():
            self._closure(cell, deepest)
        if owner_of_file(function.__code__.co_filename):
            scope = function.__globals__
            if id(scope) not in self._seen:
                self._seen.add(id(scope))
                self._holders.append(DictHolder(scope))
            for name in function.__code__.co_names:
                if name in scope:
                    self._reach(scope[name], deepest - 1)

    def _closure(self, cell: CellType, deepest: int) -> None:
        with contextlib.suppress(ValueError):  # not filled yet
            self._reach(cell.cell_contents, deepest - 1)

    def _container(self, thing: Any, deepest: int) -> None:
        if isinstance(thing, dict):
            self._holders.append(DictHolder(thing))
            inner: Any = list(thing.values())
        elif isinstance(thing, list):
            self._holders.append(ListHolder(thing))
            inner = thing
        else:
            self._holders.append(SetHolder(thing))
            inner = ()
        for item in inner[:1000] if len(inner) else ():
            self._reach(item, deepest - 1)

    def restore(self) -> None:
        for holder in self._holders:
            if holder.changed():
                holder.restore()
        for parameter, values in self._parameters:
            now = values_of(parameter)
            if now is not None and not np.array_equal(now, values, equal_nan=now.dtype.kind == "f"):
                write(parameter, values)
        for parameter, name in self._names:
            if parameter.name != name:
                parameter.name = name
        random.setstate(self._generators[0])
        np.random.set_state(self._generators[1])
        mindspore.set_rng_state(self._generators[2])


def _is_users(thing: Any) -> bool:
    """An object of a class of the program's own."""
    if is_tensor(thing) or not hasattr(thing, "__dict__") or isinstance(thing, type):
        return False
    module = type(thing).__module__
    return module == "__main__"


@contextlib.contextmanager
def undisturbed(training: PyNative) -> Iterator[None]:
    """Nothing is observed meanwhile, and nothing the program prints is seen."""
    refused: list[str] = []

    def refuse(what: str) -> None:
        refused.append(what)
        raise Refused(what)

    def op(name: str) -> None:
        if draws(name):
            refuse(f"draws random numbers ({name})")
        if "GetNext" in name:
            refuse("takes its data from a queue")

    dispatch.forbid = op
    try:
        with contextlib.redirect_stdout(io.StringIO()), no_deeds(refuse):
            yield
    finally:
        dispatch.forbid = None
    if refused:
        raise Refused(refused[0])


def without_dropout(training: PyNative) -> bool:
    """Dropout cells pass their input on meanwhile: `State` puts their mode back. Whether there are any."""
    found = False
    for root in list(training.roster.roots.values()):
        for _, cell in cells_in(root):
            if type(cell).__name__.startswith("Dropout") and cell.training:
                cell.set_train(False)
                found = True
    return found


def run_again(training: PyNative, fn: Any, args: tuple[Any, ...], weights: Any, loss: Any) -> bool:
    """Writes the trace of the pass that has just ended. False: it could not be run again."""
    from tensonde.adapters.mindspore.seams.passes import replaying

    session, step = training.session, training.step
    tracer = Tracer(training)
    state = State(training, fn)
    grad_on, phase, stack = training.grad_on, training.phase, list(training.stack)
    try:
        with replaying(tracer), undisturbed(training):
            training.grad_on = True
            training.set_phase(Phase.FORWARD)
            if without_dropout(training):
                tracer.notes.append("dropout was left out when the step was run again")
            again = mindspore.value_and_grad(fn, None, weights)(*args)
    except (Refused, StopTraining) as problem:
        session.note("replay_refused", step=step, why=str(problem))
        return False
    except Exception as problem:
        session.note("replay_failed", step=step, why=f"{type(problem).__name__}: {problem}"[:200])
        return False
    finally:
        training.grad_on, training.stack[:] = grad_on, stack
        training.set_phase(phase)
        state.restore()
    exact = _same(tensors_in(loss)[:1], tensors_in(again)[:1])
    if not exact:
        tracer.notes.append("the step did not give the same loss again: it draws random numbers")
    training.tracing.write(tracer, step, "replay", exact=exact)
    session.uncounted()
    return True


def _same(a: list[Any], b: list[Any]) -> bool:
    if not a or not b:
        return False
    first, second = values_of(a[0]), values_of(b[0])
    return first is not None and second is not None and np.array_equal(first, second, equal_nan=True)
