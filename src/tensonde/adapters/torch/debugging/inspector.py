"""The torch side of `session/inspector.py`: live parameters, kept activations, and writing into them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.run.eager import Eager
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.seams.optimizers import known_optimizers
from tensonde.adapters.torch.tensors import array_of, dense_of, dtype_name, shape_of, version_of, without_values
from tensonde.errors import UsageError
from tensonde.model.graph import GraphCheck
from tensonde.model.site import Site
from tensonde.session.inspector import ModuleNode, OptimizerNode, Value
from tensonde.watch.suggest import nearest

Found = tuple[Tensor, str, int | None]
"""A tensor, what is worth knowing about it, and the step when it was seen if that may not be now."""


class TorchInspector:
    def __init__(self, eager: Eager) -> None:
        self.eager = eager
        self.session = eager.session

    def modules(self) -> list[ModuleNode]:
        nodes = []
        for own, root in list(self.eager.roots.items()):
            for path, module in root.named_modules():
                entry = self.eager.entries.get(id(module))
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
        for name, parameter in self.eager.parameters.live():
            seen.add(f"{name}:value")
            if parameter.requires_grad:
                seen.add(f"{name}:grad")
        return sorted(seen)

    def value(self, address: str, *, before: bool = False, index: tuple[Any, ...] = ()) -> Value:
        with unseen():  # a trace that is under way must not show it
            return self._value(address, before, index)

    def _value(self, address: str, before: bool, index: tuple[Any, ...]) -> Value:
        address = self._resolve(address)
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
        tensor, _, _ = self._find(self._resolve(address), before)
        return shape_of(tensor), dtype_name(tensor)

    def assign(self, address: str, index: tuple[Any, ...], value: float) -> str:
        address = self._resolve(address)
        tensor, _, _ = self._find(address, before=False)
        with torch.no_grad():
            target = tensor.detach()
            try:
                target[index if index else ...] = value
            except (IndexError, TypeError, RuntimeError) as problem:
                raise UsageError(f"{address} of shape {list(tensor.shape)} cannot be set so: {problem}.") from None
        self.eager.stops.changes += 1
        self.session.writer.event("assigned", address=address, index=str(index), value=value, step=self.eager.step)
        return f"{address} was changed: from here on the training is no longer bit-identical to an undisturbed run"

    def verify(self) -> Iterator[GraphCheck]:
        return self.eager.graphs.comparison.checks()

    def facts(self) -> dict[str, str]:
        policy = self.session.policy
        speed = policy.counted / (policy.bare_ns * 1e-9) if policy.bare_ns else 0.0
        return {
            "step": str(self.eager.step),
            "epoch": str(self.eager.epoch),
            "phase": str(self.eager.phase),
            "steps/s": f"{speed:.3g}",
            "overhead": f"{(policy.ratio - 1) * 100:.1f} %",
            "rank": str(self.session.rank),
            "framework": f"torch {torch.__version__}",
        }

    def optimizers(self) -> list[OptimizerNode]:
        found = list(known_optimizers)
        taken = {id(p) for optimizer in found for group in optimizer.param_groups for p in group["params"]}
        live = list(self.eager.parameters.live())
        missing = tuple(name for name, p in live if p.requires_grad and id(p) not in taken)
        return [
            OptimizerNode(type(optimizer).__name__, tuple(map(_group, optimizer.param_groups)), missing)
            for optimizer in found
        ]

    # -- finding ---------------------------------------------------------------------------------

    def _resolve(self, address: str) -> str:
        """A bare name means its most telling role: a parameter's value, a module's output."""
        if ":" in address:
            return address
        known = set(self.addresses())
        for role in ("value", "out"):
            if f"{address}:{role}" in known:
                return f"{address}:{role}"
        for role in ("out[0]", "grad", "in"):
            if f"{address}:{role}" in known:
                return f"{address}:{role}"
        return f"{address}:out"

    def _find(self, address: str, before: bool) -> Found:
        name, _, role = address.rpartition(":")
        live = dict(self.eager.parameters.live()).get(name)
        if live is not None:
            found = self._parameter(name, role, live, before)
            if found is not None:
                return found
        site = next((site for site in self.session.sites if site.address == address), None)
        if site is not None:
            return self._kept(site, before)
        buffer = self.eager.parameters.buffers.get(name)
        if buffer is not None and role == "value" and not before:
            module = buffer[0]()
            if module is not None:
                return getattr(module, buffer[1]), "", None
        close = nearest(address, self.addresses())
        hint = f"; the nearest are {', '.join(close[:3])}" if close else ""
        raise UsageError(f"there is no site {address!r} so far{hint}.")

    def _kept(self, site: Site, before: bool) -> Found:
        kept = self.eager.stops.kept
        seen = kept.get(site.id, before=before)
        if seen is None and before:
            raise UsageError(f"no earlier value of {site.address} is at hand; run a step on and try again.")
        if seen is None:
            address = site.address
            raise UsageError(f"no value of {address} is at hand; run on to it with `until {address}`.")
        notes = []
        if seen.step != kept.step and not before:
            notes.append(f"of step {seen.step}: the site did not run yet in step {kept.step}")
        if version_of(seen.tensor) != seen.version:
            notes.append("modified in place since it was seen here")
        return seen.tensor, "; ".join(notes), seen.step

    def _parameter(self, name: str, role: str, live: Tensor, before: bool) -> Found | None:
        kept = self.eager.stops.kept
        old = kept.value_before(name)
        if role == "value":
            found = old if before else live
        elif role == "grad":
            found = kept.gradient(name, live.grad, before=before)
            if found is not None and not before and live.grad is None:
                return found, "of the step before: the script has cleared the gradient since", kept.step - 1
        elif role == "update" and old is not None and not before:
            found = live.detach() - old
        else:
            found = None
        return None if found is None else (found, "", None)


def _group(group: dict[str, Any]) -> dict[str, str]:
    """What is set for a group of parameters, as text."""
    sizes = [p.numel() for p in group["params"]]
    shown = {"tensors": str(len(sizes)), "elements": str(sum(sizes))}
    plain = {k: v for k, v in group.items() if isinstance(v, int | float | tuple) and v is not False}
    texts = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in plain.items()}
    return {**shown, **texts}
