"""Gradients of traced ops, from hooks on the autograd nodes that an op made.

They tell the gradient of the op's output, and whether the op itself turned a finite gradient into NaN or Inf. The nodes are
kept until the trace ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.adapters.torch.tracing.measure import Measure, nonfinite
from tensonde.session.guard import Guard

_NODES = 64
"""Autograd nodes of one op that are watched."""


class Draft:
    """An op whose gradient may still come."""

    __slots__ = ("fields", "gradient")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.gradient: dict[str, float] = {}


Passed = Callable[[Draft, int | None, Any, Any], None]


class TracedGradients:
    def __init__(self, measure: Measure, guard: Guard) -> None:
        self._measure, self._guard = measure, guard
        self._nodes: dict[Any, int] = {}
        self._order = 0
        self.passed: Passed = self.note
        """A gradient has passed a node; who wants to keep it stands in here."""

    def follow(self, draft: Draft, index: int, tensor: Tensor, given: Any, *, first: bool) -> None:
        """Watches the autograd nodes between this output and the op's inputs."""
        top = tensor.grad_fn
        ends = {source.grad_fn for source in tensors_in(given) if source.grad_fn is not None and source is not tensor}
        waiting = [top]
        for _ in range(_NODES):
            if not waiting:
                return
            node = waiting.pop()
            if node is None or node in ends or node in self._nodes or node.name().endswith("AccumulateGrad"):
                continue
            self._nodes[node] = index
            node.register_hook(self._watcher(draft, tensor.output_nr if node is top and first else None))
            waiting += [following for following, _ in node.next_functions]

    def _watcher(self, draft: Draft, number: int | None) -> Callable[[Any, Any], None]:
        def passed(gradients_in: tuple[Any, ...], gradients_out: tuple[Any, ...]) -> None:
            try:
                self.passed(draft, number, gradients_in, gradients_out)
            except Exception as problem:
                self._guard.contain("tracing a gradient", problem)

        return passed

    def note(self, draft: Draft, number: int | None, gradients_in: Any, gradients_out: Any) -> None:
        with unseen():
            incoming = [
                self._measure(gradient, sketched=k == number) if isinstance(gradient, Tensor) else {}
                for k, gradient in enumerate(gradients_out)
            ]
            if number is not None and number < len(incoming) and (incoming[number] or not draft.gradient):
                kept = {key: value for key, value in draft.gradient.items() if key.startswith("in.")}
                draft.gradient = {**incoming[number], **kept}
            if any(nonfinite(stats) for stats in incoming) or "in.order" in draft.gradient:
                return
            bad = [
                self._measure(gradient, sketched=False)
                for gradient in gradients_in
                if isinstance(gradient, Tensor) and not self._measure.is_finite(gradient)
            ]
            if bad:
                self._order += 1
                draft.gradient["in.order"] = float(self._order)
                for name in ("nan", "pos_inf", "neg_inf"):
                    draft.gradient[f"in.{name}"] = sum(stats[name] for stats in bad)
                draft.gradient |= {f"in.{key}": value for key, value in bad[0].items() if key.startswith("bad_row")}

    def finish(self) -> None:
        self._nodes.clear()
