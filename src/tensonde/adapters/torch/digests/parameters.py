"""Parameters, their gradients and their updates, digested around each optimizer step; buffers now and then.

All parameters and gradients of an optimizer are digested in one call into the kernel: this is the
sentinel, which never sleeps, so it must cost next to nothing.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from tensonde.adapters.torch.debugging.stops import Stops
from tensonde.adapters.torch.digests.tensors import Digests
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.tensors import dense_of, device_name, dtype_name, is_dense, is_plain, part_of, shape_of
from tensonde.model.moment import Phase
from tensonde.model.site import Kind, Role

REST_EVERY = 50
"""Frozen parameters are digested in the first step and then in every n-th full look."""


class Holder(Protocol):
    """An optimizer, or what stands for one."""

    param_groups: list[dict[str, Any]]


class Plan:
    """What to digest for one optimizer. Rebuilt when its groups, the watchpoints or the breakpoints change."""

    __slots__ = ("careful", "device", "grad_sites", "kept", "parameters", "size", "update_sites", "value_sites")

    def __init__(self) -> None:
        self.parameters: list[Tensor] = []
        self.grad_sites: list[int] = []
        self.value_sites: list[int] = []
        self.update_sites: dict[int, int] = {}  # position → site
        self.kept: dict[int, Tensor] = {}  # position → value before the step
        self.careful = False
        self.device = False
        """All parameters are on devices."""
        self.size = 0


class ParameterDigests:
    def __init__(self, state: RunState, digests: Digests, stops: Stops) -> None:
        self._state, self._digests, self._stops = state, digests, stops
        self._names = state.parameters
        self.plans: dict[int, Plan] = {}
        self._names.renamed = self.plans.clear
        self._looks = 0
        self._seen = False
        """The gradients of a closure have been looked at when it ended."""

    # -- around an optimizer step ----------------------------------------------------------------

    def before(self, optimizer: Holder, closure: bool) -> None:
        self._state.set_phase(Phase.OPTIMIZER)
        if closure and not self._names.names:
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
        self._state.set_phase(Phase.OPTIMIZER)
        self._gradients(self._plan(optimizer))
        self._seen = True

    def after(self, optimizer: Holder, closure: bool) -> None:
        plan = self._plan(optimizer)
        self._state.set_phase(Phase.OPTIMIZER)
        if closure and not self._seen:
            self._gradients(plan)
        self._seen = False
        if plan.device:
            self._digests.device.add_many(self._state.session.block, plan.value_sites, plan.parameters)
        elif plan.careful:
            for site, parameter in zip(plan.value_sites, plan.parameters, strict=True):
                self._careful(site, parameter)
        else:
            self._state.session.block.add_many(plan.value_sites, plan.parameters)
        for position, site in plan.update_sites.items():
            new, old = dense_of(plan.parameters[position]), plan.kept.pop(position, None)
            if old is not None and new is not None:
                self._update(site, new.detach(), old)

    def _gradients(self, plan: Plan) -> None:
        gradients = [parameter.grad for parameter in plan.parameters]
        if plan.device and all(gradient is None or _on_device(gradient) for gradient in gradients):
            self._digests.device.add_many(self._state.session.block, plan.grad_sites, gradients)
            return
        if plan.careful or plan.device:
            for site, gradient in zip(plan.grad_sites, gradients, strict=True):
                if gradient is not None:
                    self._careful(site, gradient)
            return
        added = self._state.session.block.add_many(plan.grad_sites, gradients)
        if added < sum([gradient is not None for gradient in gradients]):
            for site, gradient in zip(plan.grad_sites, gradients, strict=True):
                if gradient is not None and not is_plain(gradient):
                    plan.careful = True
                    self._careful(site, gradient)

    def _careful(self, site: int, tensor: Tensor) -> None:
        self._digests.add(site, tensor)
        self._stops.at(site, tensor)

    def _update(self, site: int, new: Tensor, old: Tensor) -> None:
        state = self._state
        if new.device.type == "cpu" and site not in state.session.immediate and not self._stops.attentive:
            state.session.block.add_difference(site, new, old)
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
        session = self._state.session
        plan = Plan()
        plan.size = size
        unnamed = [p for g in optimizer.param_groups for p in g["params"] if id(p) not in self._names.names]
        if unnamed:
            if session.steps.step:  # of a model that no step has shown yet
                session.policy.look_soon()
            self._name(unnamed, optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name, _ = self._names.names[id(parameter)]
                self._names.trained.add(id(parameter))
                ids = self._sites(name, parameter, trainable=parameter.requires_grad)
                if not parameter.requires_grad and session.steps.step > 0:
                    continue
                if session.user_watched(session.sites[ids[Role.UPDATE]]):
                    plan.update_sites[len(plan.parameters)] = ids[Role.UPDATE]
                plan.parameters.append(parameter)
                plan.grad_sites.append(ids[Role.GRAD])
                plan.value_sites.append(ids[Role.VALUE])
        ids_wanted = {*plan.grad_sites, *plan.value_sites}
        each = self._stops.attentive or not session.immediate.isdisjoint(ids_wanted)
        plan.device = not each and bool(plan.parameters) and all(_on_device(p) for p in plan.parameters)
        plan.careful = not plan.device and (
            each or any(not is_plain(p) or (p.grad is not None and not is_plain(p.grad)) for p in plan.parameters)
        )
        return plan

    def _sites(self, name: str, tensor: Tensor, *, trainable: bool, kind: Kind = Kind.PARAMETER) -> dict[Role, int]:
        facts: dict[str, Any] = {
            "type": self._names.owner_type(name),
            "trainable": trainable,
            "shape": shape_of(tensor),
            "dtype": dtype_name(tensor),
            "part": part_of(tensor),
            "device": device_name(tensor),
        }
        roles = (Role.VALUE, Role.GRAD, Role.UPDATE)
        return {role: self._state.session.site(name, role, kind, **facts) for role in roles}

    def _name(self, unnamed: list[Tensor], optimizer: Holder) -> None:
        """Parameters of modules that were not called (yet), or tensors of no module."""
        for root in list(self._state.roster.roots.items()):
            self._names.adopt(root[1], self._names.prefix_of(root[0]))
        for k, parameter in enumerate(unnamed):
            self._names.call(parameter, f"parameter_{len(self._names.names) + k}", provisional=True)

    # -- the rest --------------------------------------------------------------------------------

    def digest_rest(self) -> None:
        """Buffers at every full look, frozen and left-out parameters at the first and then rarely."""
        state = self._state
        mark = state.session.clock()
        for name, (reference, attribute) in list(self._names.buffers.items()):
            module = reference()
            buffer = getattr(module, attribute, None)
            if buffer is not None:
                site = state.session.site(
                    name, Role.VALUE, Kind.BUFFER,
                    type=type(module).__name__, shape=shape_of(buffer), dtype=dtype_name(buffer), device=device_name(buffer),
                )  # fmt: skip
                self._digests.add(site, buffer)
        if self._looks % REST_EVERY == 0:
            for name, parameter in self._names.live():
                if id(parameter) not in self._names.trained:
                    site = self._sites(name, parameter, trainable=False)[Role.VALUE]
                    self._digests.add(site, parameter)
        self._looks += 1
        state.session.spent_since(mark)


def _on_device(tensor: Tensor) -> bool:
    return tensor.device.type != "cpu" and is_dense(tensor)
