"""Callbacks inside of compiled graphs: what a cell gives, and its gradient, at every step (docs/adr/0022).

MindSpore compiles forward hooks along with the cell. A hook that applies `ops.Custom` with a Python function leaves a node in the graph, which
hands the values to Python while the step runs, and may wait. The taps go in before the first compiled call, and only where
somebody asks: at cells and parameters with a watchpoint, or at all of them for a debugger and `--budget off`.
MindSpore reads the hooks' Python, so they are written in what its compiler knows. It passes over the hooks of cells in a `SequentialCell` or
`CellList`; there `construct` is replaced.

While a tap runs, MindSpore's own objects are out of reach: asking a parameter for anything waits for the graph, which waits for the tap.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mindspore import Tensor, float16, float32, float64, nn, ops
from numpy.typing import NDArray

from tensonde.adapters.mindspore.observers.origins import KNOWN
from tensonde.adapters.mindspore.run.entry import Entry, grow
from tensonde.adapters.mindspore.run.naming import (
    cells_in,
    children,
    is_container,
    is_optimizer,
    is_wrapper,
    parameters_in,
)
from tensonde.adapters.mindspore.tensors import tensors_in, values_of
from tensonde.model.moment import Phase
from tensonde.model.site import Kind, Role, Site, SourceLine
from tensonde.program.lines import source_line
from tensonde.session.inspector import ModuleNode, OptimizerNode
from tensonde.session.policy import Level

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative

NUMBERS = (float16, float32, float64)
"""What goes through a tap: of bfloat16, numpy knows nothing, and MindSpore would raise while the step runs."""
TAPS = __file__
"""Nodes of the compiled graph that come from here are Tensonde's."""
Seen = Callable[[NDArray[Any]], NDArray[Any]]


class Standing(NamedTuple):
    """What a debugger may ask for that MindSpore's objects tell, as it was before the compiled call."""

    modules: list[ModuleNode]
    addresses: list[str]
    optimizers: list[OptimizerNode]


class Taps:
    """Put in by the training thread; called by MindSpore's threads, one at a time, while the training thread waits for the graph."""

    def __init__(self, training: PyNative) -> None:
        self._training = training
        self._lock = threading.Lock()
        self._handles: list[Any] = []
        self._tapped: set[int] = set()
        self._problem: BaseException | None = None
        self._made = 0
        """Cells that there were when taps were put in."""
        self._expected = False
        """A compiled call is under way."""
        self.inside = False
        """A tap is being called."""
        self.given: NDArray[Any] | None = None
        """What it was called with, and will give on: a debugger may write into it."""
        self.standing: Standing | None = None
        self.arrived = False
        """Some tap has been called, so the graph was compiled with them."""

    @property
    def there(self) -> bool:
        return bool(self._handles)

    def put(self) -> None:
        """Before a compiled call: cells that were made since the last one get theirs."""
        training = self._training
        whole = training.session.options.budget is None or training.stops.debugging
        if not whole and not training.session.has_user_watchpoints:
            return
        self._expected = True
        made = sum(1 for _ in KNOWN.made)
        if made != self._made:  # what is compiled already stays as it is
            self._made = made
            self._put(whole=whole)
        if training.stops.debugging:
            from tensonde.adapters.mindspore.debugging.inspector import MindSporeInspector

            inspector = MindSporeInspector(training)
            if training.stops.kept.empty:
                training.stops.kept.snapshot(training.parameters)
            self.standing = Standing(inspector.modules(), inspector.addresses(), inspector.optimizers())

    def _put(self, *, whole: bool) -> None:
        training = self._training
        for root in trained_roots():
            if id(root) not in training.roster.entries:
                training.roster.meet_root(root)
            listed = {id(part) for _, cell in cells_in(root) if _lists(cell) for part in children(cell)}
            for _, cell in cells_in(root):
                entry = training.roster.entries.get(id(cell))
                if entry is None or is_container(cell) or id(cell) in self._tapped:
                    continue
                self._tapped.add(id(cell))
                if whole or self._asked(entry.name, Kind.MODULE, (Role.OUT, Role.GRAD), entry.type):
                    hook = _forward_hook(*self._cell_taps(entry))
                    self._handles.append(
                        _Construct(cell, hook) if id(cell) in listed else cell.register_forward_hook(hook)
                    )
        for name, parameter in training.parameters.live():
            if id(parameter) in self._tapped or not parameter.requires_grad:
                continue
            self._tapped.add(id(parameter))
            if whole or self._asked(name, Kind.PARAMETER, (Role.GRAD,), ""):
                site = training.parameters.sites(name, parameter, trainable=True)[Role.GRAD]
                self._handles.append(parameter.register_hook(_gradient_hook(_tap(self._gradient_tap(site)))))

    def _asked(self, name: str, kind: Kind, roles: tuple[Role, ...], type: str) -> bool:
        session, trainable = self._training.session, True if kind is Kind.PARAMETER else None
        return any(
            session.user_watched(Site(-1, name, role, kind, None, type, trainable, (1,), "float32")) for role in roles
        )

    def remove(self) -> None:
        """The graph cannot be compiled with them."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def abandon(self) -> None:
        """The compiled call failed."""
        self._expected = False

    def settle(self, out: Any) -> None:
        """After a compiled call that gave `out`, in the training thread: what a tap had to raise is raised here."""
        if not self._expected:
            return
        for tensor in (*tensors_in(out), *(held for one in KNOWN.optimizers() for held in list(one.parameters)[:1])):
            values_of(tensor)  # the call comes back before the graph has ended
        self._expected = False
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    # -- what arrives ----------------------------------------------------------------------------

    def _cell_taps(self, entry: Entry) -> tuple[Any, Any]:
        """For what the cell gives, the first of several, and for its gradient."""

        def forward(values: NDArray[Any]) -> NDArray[Any]:
            training, session = self._training, self._training.session
            if entry.step != training.step:
                entry.step, entry.calls = training.step, 0
            call, entry.calls = entry.calls, entry.calls + 1
            site = session.site_ids.get((entry.name, Role.OUT, None))
            if site is None:
                [(site, _)] = grow(session, entry, 0, [values], _made_at(entry.ref()))
            return self._pass(site, values, call, Phase.FORWARD) if self._wanted(site) else values

        def backward(values: NDArray[Any]) -> NDArray[Any]:
            site = self._training.session.site_ids.get((entry.name, Role.GRAD, None))
            if site is None or not self._wanted(site):
                return values
            return self._pass(site, values, max(0, entry.calls - 1), Phase.BACKWARD)

        return self._guarded(forward), self._guarded(backward)

    def _gradient_tap(self, site: int) -> Seen:
        def gradient(values: NDArray[Any]) -> NDArray[Any]:
            return self._pass(site, values, 0, Phase.BACKWARD) if self._wanted(site) else values

        return self._guarded(gradient)

    def _wanted(self, site: int) -> bool:
        training = self._training
        return (
            training.level > Level.SENTINEL
            or training.stops.keeping
            or training.session.user_watched(training.session.sites[site])
        )

    def _pass(self, site: int, values: NDArray[Any], call: int, phase: Phase) -> NDArray[Any]:
        """What is to be given on: a copy where a debugger may keep or change it."""
        training = self._training
        mark = training.session.clock()
        training.set_phase(phase)
        self.given = values.copy() if training.stops.keeping else np.ascontiguousarray(values)
        training.passed(site, self.given, call)
        training.session.spent_since(mark)
        return self.given

    def _guarded(self, seen: Seen) -> Seen:
        def arrived(values: NDArray[Any]) -> NDArray[Any]:
            with self._lock:
                if not self._expected or self._problem is not None:
                    return values
                self.arrived = self.inside = True
                try:
                    return seen(values)
                except Exception as problem:
                    self._training.session.guard.contain("observing a compiled cell", problem)
                except BaseException as end:  # the training is to end: the training thread raises it
                    self._problem = end
                finally:
                    self.inside, self.given = False, None
            return values

        return arrived


def trained_roots() -> list[Any]:
    """Cells with trained parameters that are part of no other, where wrappers for training do not count."""
    trained = {id(held) for optimizer in KNOWN.optimizers() for held in optimizer.parameters}
    candidates = [
        cell
        for cell in KNOWN.made
        if not is_optimizer(cell) and not is_wrapper(cell) and any(id(held) in trained for held in parameters_in(cell))
    ]
    inside = {id(part) for cell in candidates for _, part in cells_in(cell) if part is not cell}
    return [cell for cell in candidates if id(cell) not in inside]


def _made_at(cell: Any) -> SourceLine | None:
    """Of the line that calls it, Python sees nothing."""
    place = KNOWN.made.place(cell)
    return None if place is None else source_line(place[0].co_filename, place[1])


def _lists(cell: Any) -> bool:
    return is_container(cell) or isinstance(cell, nn.SequentialCell)


class _Construct:
    """The cell's `construct` with the hook behind it, until it is removed."""

    def __init__(self, cell: Any, hook: Any) -> None:
        self._cell = cell
        cell.__dict__.update(
            tensonde_construct=cell.construct, tensonde_hook=hook, construct=types.MethodType(_construct, cell)
        )

    def remove(self) -> None:
        for name in ("construct", "tensonde_construct", "tensonde_hook"):
            self._cell.__dict__.pop(name, None)


# -- what MindSpore compiles ---------------------------------------------------------------------------


def _construct(self, *args, **kwargs):  # type: ignore[no-untyped-def]
    return self.tensonde_hook(self, args, self.tensonde_construct(*args, **kwargs))


def _tap(seen: Seen, bprop: Any = None) -> Any:
    return ops.Custom(seen, out_shape=lambda s: s, out_dtype=lambda d: d, func_type="pyfunc", bprop=bprop)


def _forward_hook(forward: Seen, backward: Seen) -> Any:
    gradient = _tap(backward)

    def passed_back(x, out, dout):  # type: ignore[no-untyped-def]
        return (gradient(dout),)

    tap = _tap(forward, passed_back)

    def hook(cell, inputs, output):  # type: ignore[no-untyped-def]
        if isinstance(output, Tensor):
            if output.dtype in NUMBERS:
                return tap(output)
        elif isinstance(output, tuple) and isinstance(output[0], Tensor) and output[0].dtype in NUMBERS:
            return (tap(output[0]),) + output[1:]  # noqa: RUF005
        return output

    return hook


def _gradient_hook(tap: Any) -> Any:
    def hook(gradient):  # type: ignore[no-untyped-def]
        if gradient.dtype in NUMBERS:
            return tap(gradient)
        return gradient

    return hook
