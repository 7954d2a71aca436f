"""Steps of the training's own optimizer, tried while the training waits: everything that it changes is put back, to the last bit.

MindSpore's optimizers cannot be copied: what they compile belongs to their own parameters. So the optimizer itself steps, and its state, its
parameters and its attributes are as before afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mindspore
import numpy as np
from mindspore import Tensor

from tensonde.adapters.mindspore.observers.origins import groups_of
from tensonde.adapters.mindspore.tensors import is_parameter, is_tensor, memory_of, values_of, write
from tensonde.adapters.restore.holders import DictHolder
from tensonde.experiments.step import Array, NotPossible, Trial

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.experiments.graph import StepGraph


class Trials:
    def __init__(self, optimizer: Any, gradients: Sequence[Any], call: Any) -> None:
        """`gradients`: what the optimizer is about to step with. `call` calls it, unseen."""
        self._optimizer, self._gradients, self._call = optimizer, list(gradients), call

    def run(self, graph: StepGraph, steps: int, *, rate: float, own: bool, decay: bool) -> Trial:
        optimizer = self._optimizer
        held = list(optimizer.parameters)
        if len(held) != len(self._gradients) or not all(map(is_tensor, self._gradients)):
            raise NotPossible("the optimizer is not called with one gradient for each of its parameters")
        if not decay and any(group.get("weight_decay") for group in groups_of(optimizer)):
            raise NotPossible("weight decay cannot be left out on MindSpore")
        numbers = [graph.number_of(parameter) for parameter in held]
        leaves = [k for k, number in enumerate(numbers) if number is not None]
        if not leaves:
            raise NotPossible("the optimizer holds nothing that the step computes with")

        def loss(*tensors: Any) -> Any:
            changed = {numbers[k]: tensor for k, tensor in zip(leaves, tensors, strict=True)}
            return graph.compute(changed, [graph.loss])[graph.loss]  # type: ignore[arg-type]

        slope = mindspore.value_and_grad(loss, tuple(range(len(leaves))))
        losses: list[float] = []
        predicted = moved = 0.0
        cosine = scale = 1.0
        with _put_back(optimizer, held):
            self._prepare(rate, own)
            for k in range(steps + 1):
                value, found = slope(*(Tensor(_copied(held[leaf])) for leaf in leaves))
                losses.append(float(_copied(value)))
                if k == steps or not np.isfinite(losses[-1]) or (k > 1 and graph.seconds_left() < 0):
                    break
                slopes = dict(zip(leaves, found if isinstance(found, tuple | list) else (found,), strict=True))
                given = (
                    [slopes.get(n, _zeros(parameter)) for n, parameter in enumerate(held)]
                    if k or own
                    else self._gradients
                )
                before = {leaf: _copied(held[leaf]) for leaf in leaves} if k == 0 else {}
                if k == 0:
                    cosine, scale = _compared([given[leaf] for leaf in leaves], [slopes[leaf] for leaf in leaves])
                self._call(optimizer, tuple(given))
                for leaf, was in before.items():
                    change = _copied(held[leaf]).astype(np.float64) - was
                    moved = max(moved, float(np.linalg.norm(change)) / max(float(np.linalg.norm(was)), 1e-12))
                    predicted += float((change * _copied(slopes[leaf])).sum())
        return Trial(tuple(losses), predicted, moved, cosine, scale)

    def _prepare(self, rate: float, own: bool) -> None:
        optimizer = self._optimizer
        if rate != 1.0:
            rates = _rates(optimizer)
            if not rates:
                raise NotPossible("the learning rate is a schedule, which cannot be scaled")
            for held in rates:
                write(held, _copied(held) * np.float32(rate))
        if own:  # no memory of earlier steps
            trained = {id(parameter) for parameter in optimizer.parameters}
            for held in optimizer.get_parameters():
                if id(held) not in trained and held.name.partition(".")[0] in _MEMORIES:
                    write(held, np.zeros_like(_copied(held)))
                elif held.name in ("beta1_power", "beta2_power"):
                    write(held, np.ones_like(_copied(held)))


_MEMORIES = frozenset(
    ("moment1", "moment2", "moments", "accum", "stat", "mean_grad", "mean_square", "moment", "exp_avg", "exp_avg_sq")
)


def _rates(optimizer: Any) -> list[Any]:
    """The parameters that hold learning rates; none where a schedule gives them."""
    groups = getattr(optimizer, "param_groups", None)
    if isinstance(groups, list):
        found = [group.get("lr") for group in groups]
    elif getattr(optimizer, "is_group_lr", False):
        found = list(optimizer.learning_rate)
    else:
        found = [optimizer.learning_rate]
    return found if all(is_parameter(held) for held in found) else []


@contextmanager
def _put_back(optimizer: Any, held: list[Any]) -> Iterator[None]:
    everything = {id(p): p for p in (*optimizer.get_parameters(), *held)}.values()
    before = [(parameter, _copied(parameter)) for parameter in everything]
    if any(memory_of(parameter) is None for parameter, _ in before):
        raise NotPossible("a parameter of the optimizer cannot be put back")
    holder = DictHolder(vars(optimizer))
    try:
        yield
    finally:
        if holder.changed():
            holder.restore()
        for parameter, values in before:
            write(parameter, values)


def _copied(tensor: Any) -> Array:
    values = values_of(tensor)
    if values is None:
        raise NotPossible("a parameter has no values in memory")
    return values.copy()


def _zeros(parameter: Any) -> Any:
    return Tensor(np.zeros_like(_copied(parameter)))


def _compared(had: Sequence[Any], made: Sequence[Any]) -> tuple[float, float]:
    """The cosine between two sets of gradients, and how many times larger the first are."""
    product = first = second = 0.0
    for one, other in zip(had, made, strict=True):
        a, b = _copied(one).astype(np.float64), _copied(other).astype(np.float64)
        product, first, second = (
            product + float((a * b).sum()),
            first + float((a * a).sum()),
            second + float((b * b).sum()),
        )
    if not first or not second:
        return 1.0, 1.0
    return product / (first * second) ** 0.5, (first / second) ** 0.5
