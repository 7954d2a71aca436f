"""A look at the functions that the user's forward calls, in the first training step and in the first evaluations.

Sees what a module cannot show: where a graph is cut (`detach`, `.data`), and dropout that is on in eval mode.
It is a torch-function mode, on the stack only for those calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sonde.adapters.torch.facts.origins import Place, line, user_place
from sonde.adapters.torch.modes import on_stack, remove

if TYPE_CHECKING:
    from sonde.adapters.torch.eager import Eager

_push = torch._C._push_on_torch_function_stack
_DROPOUTS = frozenset(
    ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "feature_dropout")
)
MOST_CUTS = 32
MOST_NODES = 20_000


class Probe(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, eager: Eager) -> None:
        super().__init__()
        self.eager = eager
        self.on = False
        self.lingers = False
        """It was stopped during its own call."""
        self.evaluating = False
        self.cuts: list[dict[str, Any]] = []
        self.noise: list[dict[str, Any]] = []
        self._seen: set[tuple[str, Place | None]] = set()

    def start(self, *, evaluating: bool) -> None:
        self.evaluating = evaluating
        if not self.on:
            if not self.lingers:
                _push(self)
            self.on, self.lingers = True, False

    def stop(self) -> None:
        """Torch hides a mode during its own call and puts it back afterwards: then a second `stop` takes it off."""
        self.on = False
        self.lingers = not on_stack(self)
        if not self.lingers:
            remove(self)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.on:
            try:
                self._look(func, args, kwargs)
            except Exception as problem:
                self.eager.session.guard.contain("looking at a function", problem)
        return func(*args, **kwargs)

    def _look(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = getattr(func, "__name__", "")
        if self.evaluating:
            if name in _DROPOUTS or name == "scaled_dot_product_attention":
                self._dropout(name, args, kwargs)
            return
        if name == "__get__":
            name = "data" if getattr(func, "__self__", None) is Tensor.data else ""
        if name in ("detach", "data", "detach_", "numpy", "item", "tolist", "argmax", "sign", "round", "bernoulli"):
            source = args[0] if args else None
            if isinstance(source, Tensor) and source.grad_fn is not None and torch.is_grad_enabled():
                self._cut(name, source)

    def _dropout(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if name in _DROPOUTS:
            p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            active = kwargs.get("training", args[2] if len(args) > 2 else True)
        else:
            p = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
            active = True
        entry = self.eager.stack[-1] if self.eager.stack else None
        module = entry.ref() if entry is not None else None
        if not active or not p or module is None:
            return
        place = user_place(sys._getframe(3))
        if ("noise", place) in self._seen:
            return
        self._seen.add(("noise", place))
        self.noise.append(
            {
                "op": name,
                "p": float(p),
                "module": entry.name if entry else "",
                "type": type(module).__name__,
                "module_training": module.training,
                "library": isinstance(module, nn.Module) and type(module).__module__.startswith("torch.nn"),
                "line": line(place),
            }
        )

    def _cut(self, name: str, source: Tensor) -> None:
        place = user_place(sys._getframe(3))
        if (name, place) in self._seen or len(self.cuts) >= MOST_CUTS:
            return
        self._seen.add((name, place))
        entry = self.eager.stack[-1] if self.eager.stack else None
        self.cuts.append(
            {
                "kind": name,
                "module": entry.name if entry else "",
                "reaches": self.parameters_behind([source]),
                "line": line(place),
            }
        )

    def parameters_behind(self, tensors: list[Tensor]) -> list[str]:
        """Names of the parameters that the graph of these tensors leads to; bounded."""
        names = self.eager.parameters.names
        return [
            names[id(leaf)][0] if id(leaf) in names else ""
            for leaf in leaves(tensors)
            if id(leaf) in names or not isinstance(leaf, nn.Parameter)
        ][:500]


def leaves(tensors: list[Tensor]) -> list[Tensor]:
    found: dict[int, Tensor] = {}
    seen: set[Any] = set()
    queue = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    while queue and len(seen) < MOST_NODES:
        node = queue.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None and not node.next_functions:
            found[id(variable)] = variable
        queue += [inner for inner, _ in node.next_functions if inner is not None]
    return list(found.values())
