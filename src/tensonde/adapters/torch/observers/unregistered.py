"""Tensors that want a gradient and are no parameters: kept by a module, they are trained by nobody.

Met in the first backward passes. One that is there in each of them is no input (which is new each time, as in an
attack or a penalty), and if a module keeps it as an attribute, it was meant to be learnt. So it is with what a module
keeps of it: `nn.Parameter(x) * 0.02` is computed once from a parameter that nobody holds.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.observers.probe import leaves
from tensonde.adapters.torch.seams.vanishing import Ref
from tensonde.program import queries
from tensonde.program.lines import line_at

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.state import RunState

MOST = 64


class Strangers:
    def __init__(self) -> None:
        self.passes = 0
        self._met: dict[int, tuple[weakref.ref[Tensor], int]] = {}

    def met(self, leaves: list[Tensor]) -> None:
        """Leaves of one backward pass."""
        self.passes += 1
        for leaf in leaves[:MOST]:
            ref, count = self._met.get(id(leaf), (None, 0))
            known = ref is not None and ref() is leaf
            if known or len(self._met) < 4 * MOST:
                self._met[id(leaf)] = (Ref(leaf), count + 1 if known else 1)

    def facts(self, state: RunState) -> list[dict[str, Any]]:
        held = {id(p) for o in list(KNOWN.optimizers) for group in o.param_groups for p in group["params"]}
        lasting = {
            key: leaf
            for key, (ref, count) in list(self._met.items())
            if count >= 2 and count >= self.passes - 1 and (leaf := ref()) is not None and key not in held
        }
        if not lasting:
            return []
        found = []
        for entry in list(state.roster.entries.values()):
            module = entry.ref()
            for name, value in list(vars(module).items()) if module is not None else ():
                leaf = _behind(value, lasting) if isinstance(value, Tensor) else None
                if leaf is not None:
                    place = KNOWN.made.place(module)
                    code = getattr(getattr(type(module), "__init__", None), "__code__", None)
                    path = code.co_filename if code is not None else place[0].co_filename if place else ""
                    number = queries.attribute_assignment(path, name, 1, 1 << 30) if path else None
                    found.append(
                        {
                            "module": entry.name,
                            "type": entry.type,
                            "name": name,
                            "shape": list(value.shape),
                            "version": leaf._version,
                            "gradient": leaf.grad is not None,
                            "computed": leaf is not value,
                            "line": line_at(path, number) if number else None,
                        }
                    )
        return found[:16]


def _behind(kept: Tensor, lasting: dict[int, Tensor]) -> Tensor | None:
    """The one leaf that this tensor is, or was computed from."""
    if kept.grad_fn is None:
        return lasting.get(id(kept))
    found = leaves([kept])
    return lasting.get(id(found[0])) if len(found) == 1 else None
