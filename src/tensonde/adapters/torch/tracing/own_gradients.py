"""What a rank computes itself: the gradients of its backward passes, before anything brings the ranks together.

A sketch is linear, so the sketches of all ranks tell afterwards what the optimizer's gradient is made of, without a collective. They are taken where a gradient
is about to be added to a parameter: DistributedDataParallel reduces behind that place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.tensors import is_dense
from tensonde.adapters.torch.tracing.sketch import Sketch
from tensonde.session.guard import Guard

MOST = 4096
LARGEST = 1 << 26
"""Elements, as of what else a trace measures."""


class OwnGradients:
    """Of one trace. Nothing is kept alive beyond it."""

    def __init__(self, guard: Guard) -> None:
        self._sketch, self._guard = Sketch(), guard
        self._watched: dict[str, tuple[Any, Any]] = {}
        """The place where a parameter's gradient is added, and the handle of the hook there."""
        self.sums: dict[str, dict[str, float]] = {}
        """By parameter: `passes`, the sketch of the sum, and that of the last one where there were several."""

    def follow(self, name: str, parameter: Tensor) -> None:
        if name in self._watched or len(self._watched) >= MOST or not is_dense(parameter):
            return
        if not parameter.requires_grad or not parameter.is_leaf or parameter.numel() > LARGEST:
            return
        with torch.enable_grad():
            node: Any = get_gradient_edge(parameter).node
        self._watched[name] = node, node.register_prehook(self._adding(name))

    def _adding(self, name: str) -> Callable[[Any], None]:
        def adds(given: tuple[Any, ...]) -> None:
            try:
                if given and isinstance(given[0], Tensor) and is_dense(given[0]):
                    with unseen():
                        self._add(name, self._sketch(given[0]))
            except Exception as problem:
                self._guard.contain("noting a rank's own gradient", problem)

        return adds

    def _add(self, name: str, sketch: dict[str, float]) -> None:
        known = self.sums.get(name)
        if known is None:
            self.sums[name] = {"passes": 1.0, **sketch}
            return
        known["passes"] += 1
        for key, value in sketch.items():
            known[key] += value
            known[f"last.{key}"] = value

    def finish(self) -> None:
        for _, handle in self._watched.values():
            handle.remove()
        self._watched.clear()
