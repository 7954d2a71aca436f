"""The torch side of `session/inspector.py`: live parameters, kept activations, and writing into them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.inspecting import changed, group_texts, no_tensor, no_value, resolved, run_facts
from tensonde.adapters.torch.compiled.graphs import Graphs
from tensonde.adapters.torch.debugging.stops import Stops
from tensonde.adapters.torch.debugging.together import process_groups
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.seams.optimizers import known_optimizers
from tensonde.adapters.torch.tensors import (
    array_of,
    dense_of,
    dtype_name,
    gradient_of,
    shape_of,
    version_of,
    without_values,
)
from tensonde.errors import UsageError
from tensonde.model.graph import GraphCheck
from tensonde.model.site import Site
from tensonde.session.inspector import ModuleNode, OptimizerNode, Together, Value

Found = tuple[Tensor, str, int | None]
"""A tensor, what is worth knowing about it, and the step when it was seen if that may not be now."""


class TorchInspector:
    def __init__(self, state: RunState, stops: Stops, graphs: Graphs) -> None:
        self.state, self._stops, self._graphs = state, stops, graphs
        self.session = state.session

    def modules(self) -> list[ModuleNode]:
        nodes = []
        for own, root in list(self.state.roster.roots.items()):
            for path, module in root.named_modules():
                entry = self.state.roster.entries.get(id(module))
                parameters = list(module.parameters())
                nodes.append(
                    ModuleNode(
                        entry.name if entry else path,
                        type(module).__name__,
                        path.count(".") + 1 if path else 0,
                        sum(p.numel() for p in parameters),
                        sum(p.numel() for p in parameters if p.requires_grad),
                        module.training,
                        entry is not None and entry.name == own,
                    )
                )
        return nodes

    def addresses(self) -> list[str]:
        seen = {site.address for site in self.session.sites}
        for name, parameter in self.state.parameters.live():
            seen.add(f"{name}:value")
            if parameter.requires_grad:
                seen.add(f"{name}:grad")
        return sorted(seen)

    def value(self, address: str, *, before: bool = False, index: tuple[Any, ...] = ()) -> Value:
        with unseen():  # a trace that is under way must not show it
            return self._value(address, before, index)

    def _value(self, address: str, before: bool, index: tuple[Any, ...]) -> Value:
        address = resolved(address, self.addresses)
        tensor, note, step = self._find(address, before)
        dense = dense_of(tensor)
        if dense is None:
            raise UsageError(f"{address} cannot be shown: {without_values(tensor)}.")
        try:
            part = dense.detach()[index] if index else dense.detach()
        except (IndexError, TypeError, ValueError, RuntimeError) as problem:
            raise UsageError(f"{address} has shape {list(dense.shape)} and cannot be sliced so: {problem}.") from None
        host = part.resolve_conj().resolve_neg().cpu()
        name = dtype_name(host)
        if not host.is_complex() and host.is_floating_point() and name not in ("float64", "float32", "float16"):
            host = host.float()
        return Value(address, array_of(host).copy(), name, tuple(part.shape), str(tensor.device), note, step)

    def shape(self, address: str, *, before: bool = False) -> tuple[tuple[int, ...], str]:
        tensor, _, _ = self._find(resolved(address, self.addresses), before)
        return shape_of(tensor), dtype_name(tensor)

    def assign(self, address: str, index: tuple[Any, ...], value: float) -> str:
        address = resolved(address, self.addresses)
        tensor, _, _ = self._find(address, before=False)
        with torch.no_grad():
            target = tensor.detach()
            try:
                target[index if index else ...] = value
            except (IndexError, TypeError, RuntimeError) as problem:
                raise UsageError(f"{address} of shape {list(tensor.shape)} cannot be set so: {problem}.") from None
        self._stops.changes += 1
        return changed(self.session, address, index, value, self.state.step)

    def verify(self) -> Iterator[GraphCheck]:
        return self._graphs.comparison.checks()

    def together(self) -> Together | None:
        return process_groups()

    def aside(self) -> AbstractContextManager[Any]:
        return unseen()

    def facts(self) -> dict[str, str]:
        state = self.state
        return run_facts(self.session, state.step, state.epoch, state.phase, f"torch {torch.__version__}")

    def optimizers(self) -> list[OptimizerNode]:
        found = list(known_optimizers)
        taken = {id(p) for optimizer in found for group in optimizer.param_groups for p in group["params"]}
        live = list(self.state.parameters.live())
        missing = tuple(name for name, p in live if p.requires_grad and id(p) not in taken)
        return [
            OptimizerNode(type(optimizer).__name__, tuple(map(_group, optimizer.param_groups)), missing)
            for optimizer in found
        ]

    # -- finding ---------------------------------------------------------------------------------

    def _find(self, address: str, before: bool) -> Found:
        name, _, role = address.rpartition(":")
        live = dict(self.state.parameters.live()).get(name)
        if live is not None:
            found = self._parameter(name, role, live, before)
            if found is not None:
                return found
        buffer = self.state.parameters.buffers.get(name)
        if (
            buffer is not None and role == "value" and not before
        ):  # as it is, and not as it was when somebody looked at it
            module = buffer[0]()
            if module is not None:
                return getattr(module, buffer[1]), "", None
        site = next((site for site in self.session.sites if site.address == address), None)
        if site is not None:
            return self._kept(site, before)
        if live is not None and role in ("grad", "update"):
            raise no_value(address, before=before)
        raise no_tensor(address, self.addresses(), before=before)

    def _kept(self, site: Site, before: bool) -> Found:
        kept = self._stops.kept
        seen = kept.get(site.id, before=before)
        if seen is None:
            raise no_value(site.address, before=before)
        notes = []
        if seen.step != kept.step and not before:
            notes.append(f"of step {seen.step}: the site did not run yet in step {kept.step}")
        if version_of(seen.tensor) != seen.version:
            notes.append("modified in place since it was seen here")
        return seen.tensor, "; ".join(notes), seen.step

    def _parameter(self, name: str, role: str, live: Tensor, before: bool) -> Found | None:
        kept = self._stops.kept
        old = kept.value_before(name)
        if role == "value":
            found = old if before else live
        elif role == "grad":
            gradient = gradient_of(live)
            found = kept.gradient(name, gradient, before=before)
            if found is not None and not before and gradient is None:
                return found, "of the step before: the script has cleared the gradient since", kept.step - 1
        elif role == "update" and old is not None and not before:
            found = live.detach() - old
        else:
            found = None
        return None if found is None else (found, "", None)


def _group(group: dict[str, Any]) -> dict[str, str]:
    return group_texts(group, [p.numel() for p in group["params"]])
