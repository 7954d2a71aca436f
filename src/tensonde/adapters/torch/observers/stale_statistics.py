"""Models that are evaluated with batch norms whose running statistics are still those that they were made with, though
their weights are updated: by a moving average of the parameters, say, that leaves the buffers out."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tensonde.adapters.torch.observers.norms import fingerprint
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.observers.reading import READING
from tensonde.program.frames import user_place
from tensonde.program.habits import averaging_updates
from tensonde.program.lines import line_at, line_of

MOST_ROOTS = 32
MOST_LOOKS = 8
UPDATES = 16
"""In-place changes of a parameter that are more than its initialisation."""

COPIED = 2
"""Versions that a copy of a tensor may begin with."""

_AT_ONCE = ("_foreach_lerp_", "_foreach_mul_")
"""Ops that average all parameters in one call."""


class Seen:
    def __init__(self, root: nn.Module, name: str) -> None:
        self.ref = weakref.ref(root)
        self.name = name
        self.type = type(root).__name__
        self.made = KNOWN.made.line(root)
        self.done = False
        self.looks = 0
        self.changes = 0
        """Looks at which its weights were others than at the one before."""
        self.updates = 0
        self.step = -1
        self.norms: list[str] = []
        self.line: dict[str, Any] | None = None
        self._print: float | None = None

    def look(self, root: nn.Module, step: int) -> None:
        norms = {path: part for path, part in root.named_modules() if isinstance(part, _BatchNorm)}
        if not norms or not all(_fresh(norm) for norm in norms.values()):
            self.done, self.norms = True, []
            return
        self.looks += 1
        self.done = self.looks >= MOST_LOOKS
        if not self.norms:
            self.norms = list(norms)
            self.line = line_of(user_place(sys._getframe(2)))
        now = fingerprint(root)
        self.changes += self._print is not None and now != self._print
        self._print = now
        self.updates = min((p._version for p in root.parameters() if not p.is_inference()), default=0)
        self.step = step


def _fresh(norm: _BatchNorm) -> bool:
    """In eval mode, with mean 0 and variance 1. The counters of versions, which cost nothing, are asked first: as a
    rule, they tell of updates already."""
    mean, variance, count = norm.running_mean, norm.running_var, norm.num_batches_tracked
    if norm.training or mean is None or variance is None or count is None or count.is_inference() or count.is_meta:
        return False
    if count._version > COPIED or id(norm) in KNOWN.loaded:
        return False
    if not READING.may_wait(count):
        return False
    return int(count) == 0 and not bool(mean.any()) and bool((variance == 1).all())


class Untouched:
    def __init__(self) -> None:
        self.seen: dict[int, Seen] = {}
        self.parts: set[int] = set()
        """Modules that need no look of their own: those inside of roots that were seen, and all of those that are done with."""

    def evaluated(self, root: nn.Module, name: str, step: int) -> None:
        """A root is called in eval mode, after steps were made."""
        known = self.seen.get(id(root))
        if known is None or known.ref() is not root:
            if len(self.seen) >= MOST_ROOTS:
                self.parts.add(id(root))
                return
            known = self.seen[id(root)] = Seen(root, name)
            self.parts.update(id(part) for part in root.modules() if part is not root)
        if not known.done and known.step != step:
            with torch.no_grad():
                known.look(root, step)
        if known.done:
            self.parts.add(id(root))

    def facts(self) -> list[dict[str, Any]]:
        held = {id(p) for o in list(KNOWN.optimizers) for group in o.param_groups for p in group["params"]}
        return [
            {
                "root": seen.name,
                "type": seen.type,
                "made": seen.made,
                "trained": (root := seen.ref()) is not None and any(id(p) in held for p in root.parameters()),
                "norms": seen.norms[:16],
                "count": len(seen.norms),
                "looks": seen.looks,
                "changes": seen.changes,
                "updates": seen.updates,
                "step": seen.step,
                "called": seen.line,
                "update_line": update_line(),
            }
            for seen in list(self.seen.values())
            if seen.norms and (seen.changes or seen.updates >= UPDATES)
        ]


def update_line(*, inside: bool = False) -> dict[str, Any] | None:
    """The one place of the program that updates parameters of a model from those of another."""
    found = [(path, number) for path in KNOWN.files() for number in averaging_updates(path, _AT_ONCE, inside=inside)]
    return line_at(*found[0]) if len(found) == 1 else None
