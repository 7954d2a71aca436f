"""MindSpore's side of `session/inspector.py`: live parameters, kept activations, and writing into them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mindspore
import numpy as np
from numpy.typing import NDArray

from tensonde.adapters.inspecting import changed, group_texts, no_tensor, no_value, resolved, run_facts
from tensonde.adapters.mindspore.graphs.taps import Standing
from tensonde.adapters.mindspore.observers.origins import KNOWN, groups_of
from tensonde.adapters.mindspore.run.naming import cells_in, parameters_in
from tensonde.adapters.mindspore.run.pynative import PyNative
from tensonde.adapters.mindspore.tensors import (
    dtype_name,
    elements,
    is_tensor,
    shape_of,
    values_of,
    write,
)
from tensonde.errors import UsageError
from tensonde.model.graph import GraphCheck
from tensonde.model.site import Site
from tensonde.session.inspector import ModuleNode, OptimizerNode, Together, Value

Found = tuple[Any, str, int | None]
"""A tensor or an array, what is worth knowing about it, and the step when it was seen if that may not be now."""


class MindSporeInspector:
    def __init__(self, training: PyNative) -> None:
        self.training = training
        self.session = training.session

    @property
    def _standing(self) -> Standing | None:
        """Inside of a compiled step, MindSpore's objects cannot be asked: this is what they said before it."""
        taps = self.training.graphs.taps
        return taps.standing if taps.inside else None

    def modules(self) -> list[ModuleNode]:
        if self._standing is not None:
            return self._standing.modules
        nodes = []
        for own, root in list(self.training.roster.roots.items()):
            for path, cell in cells_in(root):
                entry = self.training.roster.entries.get(id(cell))
                parameters = [p for p in parameters_in(cell) if id(p) in self.training.parameters.names]
                nodes.append(
                    ModuleNode(
                        entry.name if entry else path,
                        type(cell).__name__,
                        path.count(".") + 1 if path else 0,
                        sum(map(elements, parameters)),
                        sum(elements(p) for p in parameters if p.requires_grad),
                        bool(cell.training),
                        entry is not None and entry.name == own,
                    )
                )
        return nodes

    def addresses(self) -> list[str]:
        seen = {site.address for site in self.session.sites}
        if self._standing is not None:
            return sorted(seen.union(self._standing.addresses))
        for name, parameter in self.training.parameters.live():
            seen.add(f"{name}:value")
            if parameter.requires_grad:
                seen.add(f"{name}:grad")
        return sorted(seen)

    def value(self, address: str, *, before: bool = False, index: tuple[Any, ...] = ()) -> Value:
        address = resolved(address, self.addresses)
        found, note, step = self._find(address, before)
        array = found if isinstance(found, np.ndarray) else values_of(found)
        if array is None:
            raise UsageError(f"{address} cannot be shown: it has no values in memory.")
        try:
            part = array[index] if index else array
        except (IndexError, TypeError, ValueError) as problem:
            raise UsageError(f"{address} has shape {list(array.shape)} and cannot be sliced so: {problem}.") from None
        part = np.array(part)
        return Value(address, part, _dtype(found), tuple(part.shape), "cpu", note, step)

    def shape(self, address: str, *, before: bool = False) -> tuple[tuple[int, ...], str]:
        found, _, _ = self._find(resolved(address, self.addresses), before)
        return shape_of(found), _dtype(found)

    def assign(self, address: str, index: tuple[Any, ...], value: float) -> str:
        address = resolved(address, self.addresses)
        tensor, _, _ = self._find(address, before=False)
        taps = self.training.graphs.taps
        if taps.inside and taps.given is not None and tensor is taps.given:
            put(address, taps.given, index, value)
            return changed(self.session, address, index, value, self.training.step)
        if taps.inside:
            raise UsageError(f"{address} cannot be changed inside of a compiled step: only what it stops at can.")
        if not is_tensor(tensor):
            raise UsageError(f"{address} is no tensor of the training any more, so it cannot be changed.")
        array = values_of(tensor)
        if array is None:
            raise UsageError(f"{address} cannot be changed: it has no values in memory.")
        new = array.copy()
        put(address, new, index, value)
        write(tensor, new)
        now = values_of(tensor)
        if now is None or not np.array_equal(now, new, equal_nan=True):
            raise UsageError(f"{address} cannot be changed: MindSpore does not let its memory be written to.")
        return changed(self.session, address, index, value, self.training.step)

    def verify(self) -> Iterator[GraphCheck]:
        return iter(())

    def together(self) -> Together | None:
        return None  # ranks of MindSpore are not steered together

    def aside(self) -> AbstractContextManager[Any]:
        return nullcontext()  # commands run while the training thread observes nothing

    def facts(self) -> dict[str, str]:
        training = self.training
        framework = f"mindspore {mindspore.__version__}"
        found = run_facts(self.session, training.step, training.epoch, training.phase, framework)
        if training.compiled:
            found["compiled"] = ", ".join(training.compiled)
        return found

    def optimizers(self) -> list[OptimizerNode]:
        if self._standing is not None:
            return self._standing.optimizers
        found = KNOWN.optimizers()
        taken = {id(p) for optimizer in found for p in optimizer.parameters}
        live = list(self.training.parameters.live())
        missing = tuple(name for name, p in live if p.requires_grad and id(p) not in taken)
        return [OptimizerNode(type(one).__name__, tuple(map(_group, groups_of(one))), missing) for one in found]

    # -- finding ---------------------------------------------------------------------------------

    def _find(self, address: str, before: bool) -> Found:
        name, _, role = address.rpartition(":")
        if self._standing is not None:
            return self._find_inside(name, role, address, before)
        live = dict(self.training.parameters.live()).get(name)
        if live is not None:
            found = self._parameter(name, role, live, before)
            if found is not None:
                return found
        site = next((site for site in self.session.sites if site.address == address), None)
        if site is not None:
            return self._kept(site, before)
        buffer = self.training.parameters.buffers.get(name)
        if buffer is not None and role == "value" and not before:
            cell = buffer[0]()
            if cell is not None:
                return getattr(cell, buffer[1]), "", None
        raise no_tensor(address, self.addresses(), before=before)

    def _find_inside(self, name: str, role: str, address: str, before: bool) -> Found:
        kept = self.training.stops.kept
        value = (kept.value_before(name) if before else kept.value_now(name)) if role == "value" else None
        if value is not None:
            return value, "", None
        site = next((site for site in self.session.sites if site.address == address), None)
        if site is None:
            raise no_tensor(address, self.addresses(), before=before)
        return self._kept(site, before)

    def _kept(self, site: Site, before: bool) -> Found:
        kept, address = self.training.stops.kept, site.address
        seen = kept.get(site.id, before=before)
        if seen is None:
            raise no_value(address, before=before)
        late = seen.step != kept.step and not before
        note = f"of step {seen.step}: the site did not run yet in step {kept.step}" if late else ""
        return seen.tensor, note, seen.step

    def _parameter(self, name: str, role: str, live: Any, before: bool) -> Found | None:
        old = self.training.stops.kept.value_before(name)
        found: Any = None
        if role == "value":
            found = old if before else live
        elif role == "grad" and not before:
            found = self.training.parameters.gradient(name)
        elif role == "update" and old is not None and not before:
            now = values_of(live)
            found = now - old if now is not None else None
        return None if found is None else (found, "", None)


def put(address: str, array: NDArray[Any], index: tuple[Any, ...], value: float) -> None:
    try:
        array[index if index else ...] = value
    except (IndexError, TypeError, ValueError) as problem:
        raise UsageError(f"{address} of shape {list(array.shape)} cannot be set so: {problem}.") from None


def _dtype(found: Any) -> str:
    return found.dtype.name if isinstance(found, np.ndarray) else dtype_name(found)


def _group(group: dict[str, Any]) -> dict[str, str]:
    return group_texts(group, [elements(p) for p in group["params"]])
