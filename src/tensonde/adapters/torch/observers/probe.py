"""A look at the functions that a model calls in its first evaluations: dropout that is on in eval mode.

It looks at functions only during those calls. `leaves` tells what a loss depends on.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from tensonde.adapters.torch.seams.function_mode import Looker, look, look_away
from tensonde.program.frames import user_place
from tensonde.program.lines import CodeLine, line_of

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.state import RunState

_DROPOUTS = frozenset(
    ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "feature_dropout")
)
MOST_NODES = 20_000


class Probe(Looker):
    def __init__(self, state: RunState) -> None:
        self.state = state
        self.on = False
        self.noise: list[dict[str, Any]] = []
        self._seen: set[CodeLine | None] = set()

    def start(self) -> None:
        if not self.on:
            look(self)
            self.on = True

    def stop(self) -> None:
        if self.on:
            self.on = False
            look_away(self)

    def called(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[..., Any],
        frame: FrameType,
    ) -> Any:
        name = getattr(func, "__name__", "")
        if self.on and (name in _DROPOUTS or name == "scaled_dot_product_attention"):
            try:
                self._dropout(name, args, kwargs, frame)
            except Exception as problem:
                self.state.session.guard.contain("looking at a function", problem)
        return run(*args, **kwargs)

    def _dropout(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> None:
        if name in _DROPOUTS:
            p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            active = kwargs.get("training", args[2] if len(args) > 2 else True)
        else:
            p = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
            active = True
        entry = self.state.stack[-1] if self.state.stack else None
        module = entry.ref() if entry is not None else None
        if not active or not p or module is None:
            return
        place = user_place(frame)
        if place in self._seen:
            return
        self._seen.add(place)
        root = self.state.stack[0].ref()
        self.noise.append(
            {
                "op": name,
                "p": float(p),
                "module": entry.name if entry else "",
                "type": type(module).__name__,
                "module_training": module.training,
                "registered": root is not None and any(part is module for part in root.modules()),
                "library": isinstance(module, nn.Module) and type(module).__module__.startswith("torch.nn"),
                "line": line_of(place),
            }
        )


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
