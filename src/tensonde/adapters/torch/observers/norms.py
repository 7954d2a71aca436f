"""Batch norms that are frozen with all that is around them, and whose running statistics change all the same."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.observers.reading import READING, brought
from tensonde.adapters.torch.tensors import is_dense
from tensonde.program.origin import holding

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.record import ModuleRecord

MOST_BRANCHES = 16
SAMPLED = 16
EXPERIENCED = 64
"""Batches that a norm has seen before it is met, where its statistics are more than where they began."""


class Branch:
    """A root, or a direct part of one, with batch norms and without a parameter that is trained."""

    def __init__(self, module: nn.Module, norms: dict[str, _BatchNorm], step: int) -> None:
        self.ref = weakref.ref(module)
        self.since = step
        self.looks = 0
        self.drifted = 0
        self.norms = list(norms)
        self._tracked = _batches(norms)
        loaded = any(id(norm) in KNOWN.loaded for norm in norms.values())
        self.experienced = loaded or any(count >= EXPERIENCED for count in self._tracked.values())
        """Its statistics came from elsewhere: a training before, or a state that was loaded."""
        self.variable: dict[str, Any] | None = None
        """Of a model that is frozen as a whole and was made elsewhere: the program's name for it, and where it got it."""
        self._weights = fingerprint(module)

    def look(self, module: nn.Module, norms: dict[str, _BatchNorm]) -> bool:
        """False where it is changed by somebody (a moving average, say): it is not meant to stay as it is."""
        self.looks += 1
        tracked = _batches(norms)
        self.drifted += any(count > self._tracked.get(path, count) for path, count in tracked.items())
        self._tracked |= tracked
        return fingerprint(module) == self._weights


class Norms:
    def __init__(self, entries: Mapping[int, ModuleRecord]) -> None:
        self.entries = entries
        self.frozen: dict[int, Branch] = {}
        self._changing: set[int] = set()
        """Branches that are not frozen for good: they were trained after, or are changed otherwise."""

    def look(self, roots: Iterable[nn.Module], step: int) -> None:
        """An optimizer has stepped; where there are several, what one leaves alone may be another's."""
        known_roots = list(roots)
        for key, module in {id(part): part for part in _branches(known_roots)}.items():
            known = self.frozen.get(key)
            if known is not None and known.ref() is not module:
                known = None
            if any(parameter.requires_grad for parameter in module.parameters()):
                if known is not None:
                    self._give_up(key)
                continue
            if key in self._changing:
                continue
            norms = {path: part for path, part in module.named_modules() if _drifts(part)}
            if norms and not READING.may_wait(next(iter(norms.values())).num_batches_tracked):
                continue
            if known is not None:
                if not known.look(module, norms):
                    self._give_up(key)
            elif norms and _has_layers(module) and len(self.frozen) < MOST_BRANCHES:
                branch = self.frozen[key] = Branch(module, norms, step)
                if any(module is root for root in known_roots):
                    variable = holding(sys._getframe(1), module)
                    if variable is not None and variable["line"] != KNOWN.made.line(module):
                        branch.variable = variable

    def _give_up(self, key: int) -> None:
        self._changing.add(key)
        del self.frozen[key]

    def facts(self) -> list[dict[str, Any]]:
        return [
            {
                "branch": self._name(key, branch.ref()),
                "variable": branch.variable,
                "norms": branch.norms[:16],
                "since": branch.since,
                "looks": branch.looks,
                "drifted": branch.drifted,
                "experienced": branch.experienced,
            }
            for key, branch in self.frozen.items()
        ]

    def _name(self, key: int, module: nn.Module | None) -> str:
        entry = self.entries.get(key)
        return entry.name if entry is not None else type(module).__name__


def _branches(roots: Iterable[nn.Module]) -> Iterator[nn.Module]:
    """Roots that are frozen as a whole; of others, their direct parts."""
    for root in roots:
        if any(parameter.requires_grad for parameter in root.parameters()):
            yield from root.children()
        else:
            yield root


def _drifts(module: nn.Module) -> TypeGuard[_BatchNorm]:
    return (
        isinstance(module, _BatchNorm)
        and module.training
        and module.track_running_stats
        and module.num_batches_tracked is not None
        and module.momentum != 0
    )


def _batches(norms: dict[str, _BatchNorm]) -> dict[str, int]:
    """How many batches each has seen: one wait for all of a device."""
    found: dict[torch.device, dict[str, torch.Tensor]] = {}
    for path, norm in norms.items():
        if norm.num_batches_tracked is not None:
            found.setdefault(norm.num_batches_tracked.device, {})[path] = norm.num_batches_tracked.detach()
    counts = dict.fromkeys(norms, 0)
    for held in found.values():
        counts |= dict(zip(held, torch.stack(list(held.values())).tolist(), strict=True))
    return counts


def _has_layers(module: nn.Module) -> bool:
    """Has weights beside those of norms, which are vectors."""
    return any(parameter.ndim >= 2 for parameter in module.parameters())


def fingerprint(module: nn.Module) -> float:
    """A few values of its weights."""
    some = [p.detach().reshape(-1)[:SAMPLED] for p in list(module.parameters())[:SAMPLED] if is_dense(p)]
    if len({values.device for values in some}) > 1 or (some and some[0].device.type != "cpu"):
        some = [
            brought(torch.cat([v.float() for v in some if v.device == device])) for device in {v.device for v in some}
        ]
    return float(torch.cat([values.double() for values in some]).sum()) if some else 0.0
