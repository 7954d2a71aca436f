"""`tensonde.inspect`: one call of an op, a function or a cell, op by op, with its gradients; no training is needed.

The call is a real one, in PyNative mode: what it changes (moving statistics, random state) it changes once. What `jit` or GRAPH_MODE
would compile runs as Python, so that its ops show.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, cast

import mindspore
from mindspore import GRAPH_MODE, PYNATIVE_MODE, Tensor, nn

from tensonde.adapters.inspected import (
    KEPT_BYTES,
    PARTLY,
    Inspection,
    Reading,
    Wrt,
    callable_or_refuse,
    names_of,
    no_gradient,
    positions_of,
)
from tensonde.adapters.mindspore import private
from tensonde.adapters.mindspore.run.entry import Entry
from tensonde.adapters.mindspore.run.naming import cells_in, name_inside, name_root, own_parameters
from tensonde.adapters.mindspore.seams.cells import original_call
from tensonde.adapters.mindspore.seams.place import HERE
from tensonde.adapters.mindspore.tensors import (
    bytes_of,
    is_floating,
    is_parameter,
    is_tensor,
    shape_of,
    tensors_in,
    values_of,
)
from tensonde.adapters.mindspore.tracing.tracer import Draft, Tracer, key_of
from tensonde.model.moment import Phase
from tensonde.model.site import Role
from tensonde.program import frames
from tensonde.session.guard import Guard
from tensonde.session.options import Options

_DEEPEST = 4


def inspect(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: Wrt, frame: FrameType) -> Inspection:
    """`frame` is the caller's, which may have names for cells."""
    callable_or_refuse(fn)
    frames.register("mindspore", mindspore.__file__)
    names = names_of(fn.construct if isinstance(fn, nn.Cell) else fn, args, kwargs)
    given = [*args, *kwargs.values()]
    positions = positions_of(wrt, names, given, Tensor)
    for k in positions:
        if not is_floating(given[k]):
            raise no_gradient(names[k], given[k].dtype, f"{names[k]}.float()")
    given = [Tensor(one) if is_tensor(one) and not is_parameter(one) else one for one in given]
    # The dispatch mode does not see ops on tensors that ops have made outside of it.
    scene = Scene(frame)
    for cell in _reached((fn, args, kwargs), _DEEPEST, set()):
        scene.meet(cell)
    tracer = KeepingTracer(scene, [given[k] for k in positions])
    call = Call(fn, given, list(kwargs), positions, scene, tracer)
    trained = dict(scene.trained)
    with _aside(scene, tracer):
        gradients = call.differentiated(list(trained.values())) if positions or trained else call.plain()
    asked = dict(zip([*(names[k] for k in positions), *trained], gradients, strict=True))
    return Inspection(tracer.finish(0, "inspect"), tracer.values, call.result, asked, _READING)


def _raw(tensor: Any) -> tuple[bytes, str, tuple[int, ...]]:
    values = values_of(tensor)
    assert values is not None
    return values.tobytes(), str(values.dtype), shape_of(tensor)


_READING = Reading("mindspore", _raw, lambda tensor: cast(Any, values_of(tensor)))


class Call:
    """The one call. MindSpore differentiates a function of its inputs, so those of interest are handed over, and the others stand."""

    def __init__(
        self,
        fn: Any,
        given: list[Any],
        keys: list[str],
        positions: list[int],
        scene: Scene,
        tracer: KeepingTracer,
    ) -> None:
        self._fn, self._given, self._keys, self._positions = fn, given, keys, positions
        self._scene, self._tracer = scene, tracer
        self.result: Any = None

    def plain(self) -> list[Any]:
        self._scene.grad_on = False
        self._forward()
        return []

    def differentiated(self, weights: list[Any]) -> list[Any]:
        """The gradients of the inputs, then of the weights. Of the sum of all results, as it is for a loss."""
        inputs = [self._given[k] for k in self._positions]
        position = tuple(range(len(inputs))) if inputs else None
        try:
            found = tensors_in(mindspore.grad(self._forward, position, weights or None)(*inputs))
        except Exception:
            if self.result is None or any(map(is_floating, tensors_in(self.result))):
                raise
            found = []  # the result has no gradient, such as an argmax
        return found or [None] * (len(inputs) + len(weights))

    def _forward(self, *inputs: Any) -> Any:
        given = list(self._given)
        for k, tensor in zip(self._positions, inputs, strict=True):
            given[k] = tensor
        plain = len(given) - len(self._keys)
        self.result = self._fn(*given[:plain], **dict(zip(self._keys, given[plain:], strict=True)))
        self._scene.phase = Phase.BACKWARD
        self._tracer.differentiated(self.result)
        return self.result


def _reached(thing: Any, deepest: int, seen: set[int]) -> Iterator[Any]:
    """The cells that a call of it may run: what a function closes over or names, what an object holds."""
    if deepest < 0 or id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, nn.Cell):
        yield thing
        return
    inner: list[Any] = []
    if isinstance(thing, functools.partial):
        inner = [thing.func, thing.args, thing.keywords]
    elif isinstance(thing, MethodType):
        inner = [thing.__self__, thing.__func__]
    elif isinstance(thing, FunctionType):
        if not frames.is_user(thing.__code__):
            return
        inner = [thing.__globals__[name] for name in thing.__code__.co_names if name in thing.__globals__]
        for cell in thing.__closure__ or ():
            with contextlib.suppress(ValueError):  # not filled yet
                inner.append(cell.cell_contents)
    elif isinstance(thing, list | tuple):
        inner = list(thing)[:1000]
    elif isinstance(thing, dict):
        inner = list(thing.values())[:1000]
    elif not isinstance(thing, type | ModuleType) and not frames.is_framework(type(thing).__module__):
        inner = list(getattr(thing, "__dict__", {}).values())
    for held in inner:
        yield from _reached(held, deepest - 1, seen)


# -- what the tracer asks of an adapter ------------------------------------------------------------


class Scene:
    """The part of the adapter that a trace needs: names, the stack of cells, the phase. No session."""

    def __init__(self, frame: FrameType) -> None:
        self._frame = frame
        self.phase = Phase.FORWARD
        self.grad_on = True
        self.stack: list[Entry] = []
        self.entries: dict[int, Entry] = {}
        self.roots: dict[str, Any] = {}
        self.trained: dict[str, Any] = {}
        self.names: dict[int, tuple[str, Any]] = {}
        self.session = SimpleNamespace(guard=Guard(), options=Options(run=""))

    def contain(self, where: str, problem: Exception) -> None:
        self.session.guard.contain(where, problem)

    def meet(self, cell: Any) -> None:
        if self.stack:
            parent = self.stack[-1]
            holder = parent.ref()
            inside = name_inside(holder, cell) if holder is not None else type(cell).__name__
            self._adopt(cell, f"{parent.name}.{inside}", f"{parent.name}.{inside}.")
            return
        if id(cell) in self.entries:
            return
        named = name_root(cell, self._frame, self.roots)
        self.roots[named.own] = named.owner
        self._adopt(named.owner, named.own, named.prefix)
        if id(cell) not in self.entries:
            self._adopt(cell, named.own, f"{named.own}.")

    def _adopt(self, root: Any, own: str, prefix: str) -> None:
        for path, cell in cells_in(root):
            name = prefix + path if path else own
            base = f"{prefix}{path}." if path else prefix
            self.entries.setdefault(id(cell), Entry(name, cell, lambda _: None))
            for attribute, parameter in own_parameters(cell):
                self.names.setdefault(id(parameter), (base + attribute, parameter))
                if parameter.requires_grad:
                    self.trained.setdefault(base + attribute, parameter)

    def of(self, cell: Any) -> Entry:
        if id(cell) not in self.entries:
            self.meet(cell)
        return self.entries[id(cell)]


class KeepingTracer(Tracer):
    """A trace that also keeps the values, as they were when they were made."""

    def __init__(self, scene: Scene, inputs: list[Any]) -> None:
        """`inputs`: those whose gradients are asked for."""
        super().__init__(cast(Any, scene))
        self._scene = scene
        self._inputs = {key_of(tensor) for tensor in inputs}
        self._left = KEPT_BYTES
        self.values: dict[tuple[int, Role, int], Any] = {}

    def _name(self, key: Any) -> tuple[str, bool]:
        if len(self._names) < len(self._scene.names):
            self._names = {key_of(p): (name, bool(p.requires_grad)) for name, p in self._scene.names.values()}
        return self._names.get(key, ("", key in self._inputs))

    def _outputs(self, draft: Draft, made: list[Any]) -> None:
        super()._outputs(draft, made)
        for k, tensor in enumerate(made):
            self._keep(draft, Role.OUT, k, tensor)

    def _watcher(self, draft: Draft) -> Callable[[Any], None]:
        measured = super()._watcher(draft)

        def arrived(gradient: Any) -> None:
            measured(gradient)
            if is_tensor(gradient):
                self._keep(draft, Role.GRAD, 0, gradient)

        return arrived

    def _keep(self, draft: Draft, role: Role, k: int, tensor: Any) -> None:
        size = bytes_of(tensor)
        values = values_of(tensor) if size <= self._left else None
        if values is None:
            if size > self._left and PARTLY not in self.notes:
                self.notes.append(PARTLY)
            return
        self._left -= size
        self.values[draft.fields["index"], role, k] = Tensor(values.copy(), dtype=tensor.dtype)


@contextlib.contextmanager
def _aside(scene: Scene, tracer: Tracer) -> Iterator[None]:
    """Cells are shown to this trace and to no training, and nothing is compiled."""

    def shown(cell: Any, *args: Any, **kwargs: Any) -> Any:
        entry = scene.of(cell)
        tracer.entering(entry, cell, args, kwargs)
        scene.stack.append(entry)
        out = None
        try:
            out = original_call(cell, *args, **kwargs)
        finally:
            scene.stack.pop()
            tracer.left(entry, cell, args, kwargs, out)
        return out

    before, training, pending = nn.Cell.__call__, HERE.training, HERE.pending
    jit, mode = os.environ.get("MS_JIT"), mindspore.get_context("mode")
    HERE.training, HERE.pending = None, False
    os.environ["MS_JIT"] = "0"
    if mode == GRAPH_MODE:
        private.set_mode(PYNATIVE_MODE)
    nn.Cell.__call__ = shown
    tracer.begin()
    try:
        yield
    except BaseException:
        private.abandon_pass()
        raise
    finally:
        tracer.pause()
        nn.Cell.__call__ = before
        if mode == GRAPH_MODE:
            private.set_mode(GRAPH_MODE)
        if jit is None:
            del os.environ["MS_JIT"]
        else:
            os.environ["MS_JIT"] = jit
        HERE.training, HERE.pending = training, pending
