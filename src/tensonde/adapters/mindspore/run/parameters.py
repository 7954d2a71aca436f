"""Parameters, their gradients and their updates, digested around each optimizer step; statistics now and then.

A gradient is no attribute of a parameter here: it is what the optimizer is called with. All of an optimizer are digested in one
call into the kernel.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tensonde.adapters.mindspore.run.naming import cells_in, is_statistic, own_parameters
from tensonde.adapters.mindspore.tensors import dtype_name, is_tensor, shape_of, values_of
from tensonde.model.moment import Phase
from tensonde.model.site import Kind, Role

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative
    from tensonde.adapters.mindspore.tracing.tracer import Tracer

REST_EVERY = 50
"""Frozen parameters are looked at in the first step and then every so many full looks."""


class Plan:
    """What to digest for one optimizer. Rebuilt when its parameters, the watchpoints or the breakpoints change."""

    __slots__ = ("careful", "grad_sites", "kept", "names", "parameters", "update_sites", "value_sites")

    def __init__(self) -> None:
        self.parameters: list[Any] = []
        self.names: list[str] = []
        self.grad_sites: list[int] = []
        self.value_sites: list[int] = []
        self.update_sites: dict[int, int] = {}  # position → site
        self.kept: dict[int, Any] = {}  # position → value before the step
        self.careful = False


class Parameters:
    def __init__(self, training: PyNative) -> None:
        self.training = training
        self.names: dict[int, tuple[str, weakref.ref[Any]]] = {}
        self.buffers: dict[str, tuple[weakref.ref[Any], str]] = {}
        self.plans: dict[int, Plan] = {}
        self.gradients: dict[str, weakref.ref[Any]] = {}
        """The latest of each parameter, as long as the program keeps it."""
        self.trained: set[int] = set()
        self.owners: dict[int, tuple[str, weakref.ref[Any]]] = {}
        """Of a parameter, by its id: the cell that has it."""
        self.unreached: set[str] = set()
        """Parameters that no loss leads back to. MindSpore gives zeros for them; they have no gradient as long as it is zeros."""
        self.reached: set[str] = set()
        """Parameters that the loss of a traced step leads back to, whether or not the program asks for their gradients."""
        self._types: dict[str, str] = {}
        self._prefixes: dict[str, str] = {}
        self._looks = 0

    def adopt(self, root: Any, own: str, prefix: str) -> None:
        for path, cell in cells_in(root):
            name = prefix + path if path else own
            base = f"{prefix}{path}." if path else prefix
            for attribute, parameter in own_parameters(cell):
                if is_statistic(cell, attribute, parameter):
                    self.buffers.setdefault(base + attribute, (weakref.ref(cell), attribute))
                    continue
                self._call(parameter, base + attribute)
                self.owners.setdefault(id(parameter), (name, weakref.ref(cell)))
                self._types.setdefault(base + attribute, type(cell).__name__)
        self._prefixes[own] = prefix

    def _call(self, parameter: Any, name: str) -> None:
        key = id(parameter)
        if key not in self.names:
            names, trained, owners = self.names, self.trained, self.owners

            def gone(_: Any) -> None:
                names.pop(key, None)
                owners.pop(key, None)
                trained.discard(key)

            self.names[key] = (name, weakref.ref(parameter, gone))

    def live(self) -> Iterator[tuple[str, Any]]:
        for name, reference in list(self.names.values()):
            parameter = reference()
            if parameter is not None:
                yield name, parameter

    def prefix_of(self, root: str) -> str:
        return self._prefixes.get(root, f"{root}.")

    def gradient(self, name: str) -> Any:
        found = self.gradients.get(name)
        return found() if found is not None else None

    def arrived(self, weights: Sequence[Any], gradients: Sequence[Any]) -> None:
        """A backward pass gave these."""
        for parameter, gradient in zip(weights, gradients, strict=False):
            known = self.names.get(id(parameter))
            if known is not None and is_tensor(gradient) and known[0] not in self.unreached:
                self.gradients[known[0]] = weakref.ref(gradient)

    def traced(self, tracer: Tracer) -> None:
        reached, unreached = tracer.reach()
        self.reached |= reached
        self.unreached |= unreached

    # -- around an optimizer step ----------------------------------------------------------------

    def before(self, optimizer: Any, gradients: Sequence[Any]) -> None:
        self.training.set_phase(Phase.OPTIMIZER)
        plan = self._plan(optimizer)
        given = [gradient if is_tensor(gradient) else None for gradient in gradients[: len(plan.parameters)]]
        for k, (name, gradient) in enumerate(zip(plan.names, given, strict=False)):
            if gradient is not None and name in self.unreached and self._is_zero(gradient, name):
                given[k] = None
            elif gradient is not None:
                self.gradients[name] = weakref.ref(gradient)
        self._digest(plan, plan.grad_sites, given)
        if self.training.tracing.tracer is not None:
            self.training.tracing.tracer.weigh("gradient", zip(plan.names, plan.parameters, given, strict=False))
        for position in plan.update_sites:
            value = values_of(plan.parameters[position])
            if value is not None:
                plan.kept[position] = value.copy()

    def _is_zero(self, gradient: Any, name: str) -> bool:
        values = values_of(gradient)
        if values is not None and not values.any():
            return True
        self.unreached.discard(name)
        return False

    def after(self, optimizer: Any) -> None:
        plan = self._plan(optimizer)
        self.training.set_phase(Phase.OPTIMIZER)
        self._digest(plan, plan.value_sites, plan.parameters)
        if self.training.tracing.tracer is not None:
            self.training.tracing.tracer.weigh("after", zip(plan.names, plan.parameters, plan.parameters, strict=True))
        for position, site in plan.update_sites.items():
            new, old = values_of(plan.parameters[position]), plan.kept.pop(position, None)
            if new is None or old is None:
                continue
            if plan.careful:
                self.training.passed(site, new - old)
            else:
                self.training.block.add_difference(site, new, old)

    def _digest(self, plan: Plan, sites: list[int], tensors: Sequence[Any]) -> None:
        if plan.careful:
            for site, tensor in zip(sites, tensors, strict=False):
                if tensor is not None:
                    self.training.passed(site, tensor)
        else:
            arrays = [None if tensor is None else values_of(tensor) for tensor in tensors]
            self.training.block.add_many(sites[: len(arrays)], arrays)

    # -- plans -----------------------------------------------------------------------------------

    def _plan(self, optimizer: Any) -> Plan:
        plan = self.plans.get(id(optimizer))
        if plan is None:
            plan = self.plans[id(optimizer)] = self._make(optimizer)
        return plan

    def _make(self, optimizer: Any) -> Plan:
        session = self.training.session
        plan = Plan()
        held = list(optimizer.parameters)
        unnamed = [parameter for parameter in held if id(parameter) not in self.names]
        if unnamed:
            for own, root in list(self.training.roster.roots.items()):
                self.adopt(root, own, self.prefix_of(own))
            taken = {name for name, _ in self.names.values()}
            for parameter in unnamed:
                name = str(parameter.name)  # another one may have it: a layer that has taken its place in the network
                self._call(parameter, f"{type(optimizer).__name__}.{name}" if name in taken else name)
        for parameter in held:
            name, _ = self.names[id(parameter)]
            self.trained.add(id(parameter))
            sites = self.sites(name, parameter, trainable=parameter.requires_grad)
            if session.user_watched(session.sites[sites[Role.UPDATE]]):
                plan.update_sites[len(plan.parameters)] = sites[Role.UPDATE]
            plan.parameters.append(parameter)
            plan.names.append(name)
            plan.grad_sites.append(sites[Role.GRAD])
            plan.value_sites.append(sites[Role.VALUE])
        wanted = {*plan.grad_sites, *plan.value_sites, *plan.update_sites.values()}
        plan.careful = self.training.stops.keeping or not session.immediate.isdisjoint(wanted)
        return plan

    def sites(self, name: str, tensor: Any, *, trainable: bool) -> dict[Role, int]:
        facts: dict[str, Any] = {
            "type": self._types.get(name, ""),
            "trainable": trainable,
            "shape": shape_of(tensor),
            "dtype": dtype_name(tensor),
        }
        roles = (Role.VALUE, Role.GRAD, Role.UPDATE)
        return {role: self.training.session.site(name, role, Kind.PARAMETER, **facts) for role in roles}

    # -- the rest --------------------------------------------------------------------------------

    def digest_rest(self) -> None:
        """Statistics at every full look, frozen and left-out parameters at the first and then rarely."""
        session = self.training.session
        for name, (reference, attribute) in self.buffers.items():
            cell = reference()
            held = getattr(cell, attribute, None) if cell is not None else None
            if held is not None:
                site = session.site(
                    name,
                    Role.VALUE,
                    Kind.BUFFER,
                    type=type(cell).__name__,
                    shape=shape_of(held),
                    dtype=dtype_name(held),
                )
                self.training.add(site, held)
        if self._looks % REST_EVERY == 0:
            for name, parameter in self.live():
                if id(parameter) not in self.trained:
                    self.training.add(self.sites(name, parameter, trainable=False)[Role.VALUE], parameter)
        self._looks += 1
