"""Parameters, their gradients and their updates, digested around each optimizer step; buffers now and then.

All parameters and gradients of an optimizer are digested in one call into the kernel: this is the
sentinel, which never sleeps, so it must cost next to nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.run.naming import clean
from tensonde.adapters.torch.seams.vanishing import Ref, forgetting_key
from tensonde.adapters.torch.tensors import dense_of, dtype_name, is_plain, shape_of
from tensonde.model.moment import Phase
from tensonde.model.site import Kind, Role

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.eager import Eager

_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
REST_EVERY = 50
"""Frozen parameters are looked at in the first step and then every so many full looks."""


class Holder(Protocol):
    """An optimizer, or what stands for one."""

    param_groups: list[dict[str, Any]]


class Plan:
    """What to digest for one optimizer. Rebuilt when its groups, the watchpoints or the breakpoints change."""

    __slots__ = ("careful", "grad_sites", "kept", "parameters", "size", "update_sites", "value_sites")

    def __init__(self) -> None:
        self.parameters: list[Tensor] = []
        self.grad_sites: list[int] = []
        self.value_sites: list[int] = []
        self.update_sites: dict[int, int] = {}  # position → site
        self.kept: dict[int, Tensor] = {}  # position → value before the step
        self.careful = False
        self.size = 0


class Parameters:
    def __init__(self, eager: Eager) -> None:
        self.eager = eager
        self.names: dict[int, tuple[str, weakref.ref[Tensor]]] = {}
        self.buffers: dict[str, tuple[weakref.ref[nn.Module], str]] = {}
        self.plans: dict[int, Plan] = {}
        self.trained: set[int] = set()
        self._owner: dict[str, str] = {}
        self._prefixes: dict[str, str] = {}
        self._provisional: set[int] = set()
        """Parameters that go by a number until the module that they belong to is called."""
        self._looks = 0
        self._seen = False
        """The gradients of a closure have been looked at when it ended."""

    def adopt(self, root: nn.Module, prefix: str) -> None:
        for path, module in root.named_modules():
            base = prefix + (f"{clean(path, root)}." if path else "")
            for name, parameter in module.named_parameters(recurse=False):
                if _wrapped(parameter):  # put there by torch.func for the time of one call
                    continue
                self._call(parameter, base + name)
                self._owner.setdefault(base + name, type(module).__name__)
            for name, buffer in module.named_buffers(recurse=False):
                if buffer is not None and buffer.is_floating_point():
                    self.buffers.setdefault(base + name, (weakref.ref(module), name))
        own = self.eager.entries[id(root)].name
        self._prefixes[own] = prefix

    def _call(self, parameter: Tensor, name: str, *, provisional: bool = False) -> None:
        key = id(parameter)
        if key in self._provisional and not provisional:
            self._provisional.discard(key)
            del self.names[key]
            self.plans.clear()
        if key not in self.names:
            if provisional:
                self._provisional.add(key)
            self.names[key] = (
                name,
                Ref(parameter, forgetting_key(key, self.names, self._provisional, self.trained)),
            )

    def live(self) -> Iterator[tuple[str, Tensor]]:
        for name, reference in list(self.names.values()):
            parameter = reference()
            if parameter is not None:
                yield name, parameter

    def prefix_of(self, root: str) -> str:
        return self._prefixes.get(root, f"{root}.")

    # -- around an optimizer step ----------------------------------------------------------------

    def before(self, optimizer: Holder, closure: bool) -> None:
        self.eager.set_phase(Phase.OPTIMIZER)
        if closure and not self.names:
            return  # nothing has been called yet, so nothing has a name; the closure will see to that
        plan = self._plan(optimizer)
        if not closure:
            self._gradients(plan)
        for position in plan.update_sites:
            before = dense_of(plan.parameters[position])
            if before is not None:
                plan.kept[position] = before.detach().clone()

    def closure_ended(self, optimizer: Holder) -> None:
        """Looks at the gradients that the optimizer is about to use."""
        self.eager.set_phase(Phase.OPTIMIZER)
        self._gradients(self._plan(optimizer))
        self._seen = True

    def after(self, optimizer: Holder, closure: bool) -> None:
        plan = self._plan(optimizer)
        self.eager.set_phase(Phase.OPTIMIZER)
        if closure and not self._seen:
            self._gradients(plan)
        self._seen = False
        if plan.careful:
            for site, parameter in zip(plan.value_sites, plan.parameters, strict=True):
                self._careful(site, parameter)
        else:
            self.eager.block.add_many(plan.value_sites, plan.parameters)
        for position, site in plan.update_sites.items():
            new, old = dense_of(plan.parameters[position]), plan.kept.pop(position, None)
            if old is not None and new is not None:
                self._update(site, new.detach(), old)

    def _gradients(self, plan: Plan) -> None:
        gradients = [parameter.grad for parameter in plan.parameters]
        if plan.careful:
            for site, gradient in zip(plan.grad_sites, gradients, strict=True):
                if gradient is not None:
                    self._careful(site, gradient)
            return
        added = self.eager.block.add_many(plan.grad_sites, gradients)
        if added < sum([gradient is not None for gradient in gradients]):
            for site, gradient in zip(plan.grad_sites, gradients, strict=True):
                if gradient is not None and not is_plain(gradient):
                    plan.careful = True
                    self._careful(site, gradient)

    def _careful(self, site: int, tensor: Tensor) -> None:
        self.eager.add(site, tensor)
        self.eager.stops.at(site, tensor)

    def _update(self, site: int, new: Tensor, old: Tensor) -> None:
        eager = self.eager
        if new.device.type == "cpu" and site not in eager.session.immediate and not eager.stops.attentive:
            eager.block.add_difference(site, new, old)
        else:
            self._careful(site, new - old)

    # -- plans -----------------------------------------------------------------------------------

    def _plan(self, optimizer: Holder) -> Plan:
        plan = self.plans.get(id(optimizer))
        size = 0
        for group in optimizer.param_groups:  # enough to notice groups that were added, changed or exchanged
            held = group["params"]
            size += len(held) + (id(held[0]) ^ id(held[-1]) if held else 0)
        if plan is None or plan.size != size:
            plan = self.plans[id(optimizer)] = self._make(optimizer, size)
        return plan

    def _make(self, optimizer: Holder, size: int) -> Plan:
        session = self.eager.session
        plan = Plan()
        plan.size = size
        unnamed = [p for g in optimizer.param_groups for p in g["params"] if id(p) not in self.names]
        if unnamed:
            if session.steps.step:  # of a model that no step has shown yet
                session.policy.look_soon()
            self._name(unnamed, optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name, _ = self.names[id(parameter)]
                self.trained.add(id(parameter))
                ids = self._sites(name, parameter, trainable=parameter.requires_grad)
                if not parameter.requires_grad and session.steps.step > 0:
                    continue
                if session.user_watched(session.sites[ids[Role.UPDATE]]):
                    plan.update_sites[len(plan.parameters)] = ids[Role.UPDATE]
                plan.parameters.append(parameter)
                plan.grad_sites.append(ids[Role.GRAD])
                plan.value_sites.append(ids[Role.VALUE])
        ids_wanted = {*plan.grad_sites, *plan.value_sites}
        plan.careful = (
            self.eager.stops.attentive
            or not session.immediate.isdisjoint(ids_wanted)
            or any(not is_plain(p) or (p.grad is not None and not is_plain(p.grad)) for p in plan.parameters)
        )
        return plan

    def _sites(self, name: str, tensor: Tensor, *, trainable: bool, kind: Kind = Kind.PARAMETER) -> dict[Role, int]:
        facts: dict[str, Any] = {
            "type": self._owner.get(name, ""),
            "trainable": trainable,
            "shape": shape_of(tensor),
            "dtype": dtype_name(tensor),
        }
        roles = (Role.VALUE, Role.GRAD, Role.UPDATE)
        return {role: self.eager.session.site(name, role, kind, **facts) for role in roles}

    def _name(self, unnamed: list[Tensor], optimizer: Holder) -> None:
        """Parameters of modules that were not called (yet), or tensors of no module."""
        for root in list(self.eager.roots.items()):
            self.adopt(root[1], self.prefix_of(root[0]))
        for k, parameter in enumerate(unnamed):
            self._call(parameter, f"parameter_{len(self.names) + k}", provisional=True)

    # -- the rest --------------------------------------------------------------------------------

    def digest_rest(self) -> None:
        """Buffers at every full look, frozen and left-out parameters at the first and then rarely."""
        eager = self.eager
        mark = eager.session.clock()
        for name, (reference, attribute) in self.buffers.items():
            module = reference()
            buffer = getattr(module, attribute, None)
            if buffer is not None:
                site = eager.session.site(
                    name, Role.VALUE, Kind.BUFFER,
                    type=type(module).__name__, shape=shape_of(buffer), dtype=dtype_name(buffer),
                )  # fmt: skip
                eager.add(site, buffer)
        if self._looks % REST_EVERY == 0:
            for name, parameter in self.live():
                if id(parameter) not in self.trained:
                    site = self._sites(name, parameter, trainable=False)[Role.VALUE]
                    eager.add(site, parameter)
        self._looks += 1
        eager.session.spent_since(mark)
