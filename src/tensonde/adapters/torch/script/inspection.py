"""`tensonde.inspect`: one call of an op, a function or a module, op by op, with its gradients; no training is needed.

The call is a real one: what it changes (running statistics, random state) it changes once. Its backward pass
writes to no `.grad`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

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
from tensonde.adapters.torch.compiled.inspection import Capture, difference, original_of
from tensonde.adapters.torch.run.naming import RootName, clean, name_inside, name_root
from tensonde.adapters.torch.run.record import ModuleRecord
from tensonde.adapters.torch.seams.current import suspended
from tensonde.adapters.torch.tensors import raw_bytes, tensors_in
from tensonde.adapters.torch.tracing.gradients import Draft
from tensonde.adapters.torch.tracing.tracer import Tracer
from tensonde.model.moment import Phase
from tensonde.model.site import Role
from tensonde.session.guard import Guard
from tensonde.session.options import Options

_READING = Reading(
    "torch", raw_bytes, lambda t: (t.detach() if t.is_complex() else t.detach().float()).resolve_conj().cpu().numpy()
)


def inspect(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], wrt: Wrt, frame: FrameType
) -> Inspection:
    """`frame` is the caller's, which may have names for modules."""
    callable_or_refuse(fn)
    wanted, args, kwargs = _differentiable(fn, args, kwargs, wrt)
    if original_of(fn) is not None:
        seen = _compiled(fn, args, kwargs, wanted, frame)
        if seen is not None:
            return seen
        return _called(original_of(fn), args, kwargs, wanted, frame, ("the compiler leaves this code as it is",))
    return _called(fn, args, kwargs, wanted, frame)


def _called(
    fn: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    wanted: dict[str, Tensor] | None,
    frame: FrameType,
    notes: tuple[str, ...] = (),
) -> Inspection:
    scene = Scene(frame)
    tracer = KeepingTracer(scene)
    tracer.notes += notes
    if isinstance(fn, nn.Module):
        scene.meet(fn)
    with suspended():
        hooks = [
            register_module_forward_pre_hook(lambda module, given: scene.enter(module, tracer)),
            register_module_forward_hook(lambda module, given, out: scene.leave(), always_call=True),
        ]
        tracer.begin()
        try:
            result = fn(*args, **kwargs)
        finally:
            tracer.pause()
            for hook in hooks:
                hook.remove()
        gradients = _gradients(result, wanted, scene, tracer)
    trace = tracer.finish(0, "inspect")
    return Inspection(trace, tracer.values, result, gradients, _READING)


def _compiled(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wanted: dict[str, Tensor] | None, frame: FrameType
) -> Inspection | None:
    """None where the compiler makes no graph of it."""
    original = original_of(fn)
    scene = Scene(frame, restoring=True)
    if isinstance(original, nn.Module):
        scene.adopt_root(original, "self", prefix="")
    capture = Capture(scene)
    with suspended():
        with torch.random.fork_rng(devices=[]):
            again = capture.call(original, args, kwargs)
            gradients = _differentiate(again, {**(wanted or {}), **scene.trained})
        scene.restore()
        if not capture.count:
            return None
        result = fn(*args, **kwargs)
    note = difference(again, result) if not capture.random else ""  # compiled random numbers are others
    if note:
        capture.ops.notes.append(note)
    return Inspection(capture.ops.trace(0, "inspect"), capture.values, result, gradients, _READING)


# -- what the tracer asks of an adapter ------------------------------------------------------------


class Scene:
    """The part of the adapter that a trace needs: names, the stack of modules, the phase. No session."""

    def __init__(self, frame: FrameType, *, restoring: bool = False) -> None:
        """`restoring`: buffers are kept, because the call is made once more."""
        self.frame = frame
        self.phase = Phase.FORWARD
        self.stack: list[ModuleRecord] = []
        self.entries: dict[int, ModuleRecord] = {}
        self.roots: dict[str, nn.Module] = {}
        self.roster = SimpleNamespace(entries=self.entries, roots=self.roots)
        self.parameters = _Parameters()
        self.session = SimpleNamespace(guard=Guard(), options=Options(run=""))
        self.trained: dict[str, Tensor] = {}
        self._state: list[tuple[Tensor, Tensor]] | None = [] if restoring else None

    def meet(self, module: nn.Module, variable: str = "") -> None:
        """`variable` is what the code that calls it has for a name, where the caller of inspect has none."""
        if self.stack:
            parent = self.stack[-1]
            holder = parent.ref()
            inside = name_inside(holder, module) if holder is not None else type(module).__name__
            self._adopt(module, f"{parent.name}.{inside}", f"{parent.name}.{inside}.")
            return
        named = name_root(module, self.frame, self.roots)
        if variable and named.own == type(module).__name__.lower() and variable not in self.roots:
            named = RootName(variable, named.prefix and f"{variable}.", named.owner)
        self.adopt_root(named.owner, named.own, named.prefix)
        if id(module) not in self.entries:
            self._adopt(module, named.own, f"{named.own}.")

    def adopt_root(self, root: nn.Module, own: str, prefix: str) -> None:
        self.roots[own] = root
        self.parameters.prefixes[own] = prefix
        if self._state is not None:
            with _disable_current_modes():  # it may be met while the compiler traces
                self._state += [(buffer, buffer.detach().clone()) for buffer in root.buffers()]
        self._adopt(root, own, prefix)

    def restore(self) -> None:
        """Buffers as they were when their module was met: the call that counts is made after this one."""
        for buffer, value in self._state or ():
            buffer.data.copy_(value)

    def _adopt(self, root: nn.Module, own: str, prefix: str) -> None:
        for path, module in root.named_modules():
            name = own if not path else prefix + clean(path, root)
            self.entries.setdefault(id(module), ModuleRecord(name, module, lambda _: None))
            base = prefix + (f"{clean(path, root)}." if path else "")
            for attribute, parameter in module.named_parameters(recurse=False):
                self.parameters.names.setdefault(id(parameter), (base + attribute, None))
                if parameter.requires_grad:
                    self.trained.setdefault(base + attribute, parameter)

    def enter(self, module: nn.Module, tracer: Tracer) -> None:
        if id(module) not in self.entries:
            self.meet(module)
        entry = self.entries[id(module)]
        self.stack.append(entry)
        tracer.entered(entry)

    def leave(self) -> None:
        self.stack.pop()


class _Parameters:
    """Names of parameters by the tensor's id, and what starts the names in each root."""

    def __init__(self) -> None:
        self.names: dict[int, tuple[str, Any]] = {}
        self.buffers: dict[str, Any] = {}
        self.prefixes: dict[str, str] = {}

    def prefix_of(self, root: str) -> str:
        return self.prefixes.get(root, f"{root}.")


class KeepingTracer(Tracer):
    """A trace that also keeps the values, as they were when they were made."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(cast(Any, scene))
        self.values: dict[tuple[int, Role, int], Tensor] = {}
        self._left = KEPT_BYTES
        self.gradients.passed = self._passed

    def record(
        self, func: Any, name: Any, args: Any, kwargs: Any, inputs: Any, out: Any, frame: Any, error: str = ""
    ) -> None:
        before = len(self.drafts)
        super().record(func, name, args, kwargs, inputs, out, frame, error)
        if len(self.drafts) > before:
            given = args[0] if name == "setitem" and args else out
            for k, tensor in enumerate(tensors_in(given)):
                self.keep(before, Role.OUT, k, tensor)

    def keep(self, index: int, role: Role, k: int, tensor: Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        if size > self._left:
            if PARTLY not in self.notes:
                self.notes.append(PARTLY)
            return
        self._left -= size
        self.values[index, role, k] = tensor.detach().clone()

    def _passed(self, draft: Draft, number: int | None, gradients_in: Any, gradients_out: Any) -> None:
        self.gradients.note(draft, number, gradients_in, gradients_out)
        if number is not None and number < len(gradients_out) and isinstance(gradients_out[number], Tensor):
            self.keep(draft.fields["index"], Role.GRAD, 0, gradients_out[number])


# -- gradients -------------------------------------------------------------------------------------


def _differentiable(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: Wrt
) -> tuple[dict[str, Tensor] | None, tuple[Any, ...], dict[str, Any]]:
    """The inputs with respect to which gradients are asked for, by name (None: whatever requires one), and the arguments with
    these in place: copies that require a gradient, so that the caller's tensors stay as they are."""
    if wrt is None:
        return None, args, kwargs
    names = names_of(fn.forward if isinstance(fn, nn.Module) else fn, args, kwargs)
    given = [*args, *kwargs.values()]
    wanted = {}
    for k in positions_of(wrt, names, given, Tensor):
        tensor = given[k]
        if not (tensor.is_floating_point() or tensor.is_complex()):
            raise no_gradient(names[k], tensor.dtype, f"{names[k]}.float()")
        given[k] = wanted[names[k]] = tensor.detach().requires_grad_()
    return wanted, tuple(given[: len(args)]), dict(zip(kwargs, given[len(args) :], strict=True))


def _gradients(result: Any, wanted: dict[str, Tensor] | None, scene: Scene, tracer: Tracer) -> dict[str, Tensor | None]:
    """Of the sum of all results, as it is for a loss. Parameters always count, inputs where they were asked for."""
    leaves = dict(scene.trained) if wanted is None else {**wanted, **scene.trained}
    roots = _roots(result)
    if len(roots) == 1 and roots[0].numel() == 1:
        tracer.differentiated(roots[0])
    scene.phase = Phase.BACKWARD
    return _differentiate(result, leaves)


def _differentiate(result: Any, leaves: dict[str, Tensor]) -> dict[str, Tensor | None]:
    roots = _roots(result)
    if not roots or not leaves:
        return dict.fromkeys(leaves, None)
    found = torch.autograd.grad(
        roots, list(leaves.values()), [torch.ones_like(root) for root in roots], retain_graph=True, allow_unused=True
    )
    return dict(zip(leaves, found, strict=True))


def _roots(result: Any) -> list[Tensor]:
    return [t for t in tensors_in(result) if t.requires_grad and (t.is_floating_point() or t.is_complex())]
