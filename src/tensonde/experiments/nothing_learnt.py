"""Is the model better than one that always says the same?

Asked of every chosen step. A constant is put in the place of what the model gives to the loss, one number for each feature, and fitted
until the loss is smallest: no model that ignores its inputs does better. The outputs are also given to the wrong samples (rows
changed about): as long as nothing is learnt about which output belongs to which sample, that makes no difference. Where samples have positions, of which the model is
handed something each, outputs are also given to other positions of their own sample.

A healthy training falls below the constant, and suffers when its outputs are changed about. Not asked where the loss is no measure of
what was learnt: several losses take turns (GANs), a model makes the targets (value learning, distillation), the best constant is not
above 0 (policies, likelihoods), samples are too few. How long the training has run, and whether its loss still falls, the rule
looks at (`diagnose/rules/experiments/learning.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.pairs import parted
from tensonde.experiments.step import Array, NotPossible, Op, Step, Value

FEWEST_ROWS = 8
SHUFFLES = 12
LATE = 24
"""The first step in which it is worth the time to look where inputs and targets part."""
BETTER = 0.9
"""Of the loss of the best constant: what a model that has learnt something is below."""
AT_FLOOR, OUTWEIGHS = 0.02, 0.5
"""Of the loss of the best constant: a term below is driven to nothing; one that costs more is not worth its price."""
SHARES = (1.0, 0.5, 0.2)
"""Of the constants of earlier batches."""
ALIKE = 1e-3
"""Of the loss: what outputs that say something change it by."""
NOTHING = 1e-4
"""Of the loss: what a constant leaves where there is nothing to learn."""
SMALL = 0.03
"""Inputs of which none varies more from sample to sample are next to nothing beside biases."""
ROUNDING = 1e-5
"""Of the loss: what another order of the same rows may make of a sum."""
APART = 4.0
"""Deviations between the loss and that of outputs changed about."""


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    outputs = anatomy.outputs
    if not outputs or step.loss in outputs:
        raise NotPossible("no layer's output leads to the loss")
    if anatomy.targets_by_model:
        raise NotPossible("a model makes the targets of the loss")
    if anatomy.random_targets:
        raise NotPossible("the targets are random numbers, so nothing can be learned")
    rows = {step.values[number].shape[0] for number in outputs if step.values[number].shape}
    if min(rows, default=0) < FEWEST_ROWS:
        raise NotPossible("the batch is too small")
    loss = float(step.array(step.loss))
    towers = _towers(step, anatomy)
    if towers:
        yield _weaker(step, towers, loss, min(rows))
        return
    fit = step.fit(outputs, anatomy.tied)
    if 0 <= fit.loss <= NOTHING * loss and (handed := _passed_on(anatomy)) is not None:
        yield Answer(
            None, f"a constant takes the loss from {loss:.3g} to {fit.loss:.3g}", {"loss": loss, "constant": fit.loss},
            (handed.name,), step.loss_source, part="passed on",
        )  # fmt: skip
    if fit.loss <= 0 or loss <= 0:
        raise NotPossible("the loss is not a distance: it falls below 0")
    numbers = {"loss": loss, "constant": fit.loss, "rows": float(min(rows)), "outputs": float(len(outputs))}
    held = _of_earlier(step, outputs, memory, [fit.constants[number] for number in outputs])
    if held is not None:
        numbers["earlier_constant"] = held
    if len(rows) == 1:
        count = rows.pop()
        changed = changed_about(step, list(outputs), count)
        numbers["apart"] = deviations(loss, changed)
        numbers["samples"] = float(count // rows_each(step, count))
        numbers["order_matters"] = float(max(abs(other - loss) for other in changed) > ROUNDING * abs(loss))
        if not numbers["order_matters"] and _all_alike(step, outputs, loss):
            numbers["apart"], numbers["order_matters"], numbers["alike"] = 0.0, 1.0, 1.0
        numbers |= _within(step, anatomy, outputs, loss, count)
    constant = max(fit.loss, held) if held is not None else fit.loss
    healthy = loss < BETTER * constant or numbers.get("apart", 0.0) > APART
    term = None if healthy else _outweighing(step, anatomy, constant, numbers)
    if step.number >= LATE and "parting" not in memory:
        memory["parting"] = parted(step, anatomy)
        if memory["parting"] is not None:
            yield Answer(None, "inputs and targets diverge here", source=memory["parting"], part="parting")
    if numbers.get("apart", APART) < APART:
        yield from _next_to_nothing(step, anatomy)
    yield Answer(
        healthy,
        f"{loss / constant:.2f} of the loss of the best constant",
        numbers,
        source=term.source if term is not None else step.loss_source,
        op=term.name if term is not None else "",
        part="term" if term is not None else "",
    )


def _passed_on(anatomy: Anatomy) -> Value | None:
    """An input that meets what the model computes of it twice: it is added to it, and compared with the sum."""
    for value in anatomy.inputs:
        users = anatomy.users.get(value.number, [])
        meeting = [op for op in users if any(n in anatomy.trained and n not in anatomy.weights for n in op.inputs)]
        if len([op for op in meeting if any(n in anatomy.before_loss for n in op.outputs)]) > 1:
            return value
    return None


def _all_alike(step: Step, outputs: Mapping[int, int], loss: float) -> bool:
    """The mean of all outputs in the place of each makes no difference: they say the same of every sample, but for rounding."""
    means = {n: np.broadcast_to(step.array(n).mean(0, keepdims=True), step.values[n].shape) for n in outputs}
    return abs(step.loss_with({n: np.ascontiguousarray(mean) for n, mean in means.items()}) - loss) < ALIKE * abs(loss)


def _next_to_nothing(step: Step, anatomy: Anatomy) -> Iterable[Answer]:
    """All numbers that the model is handed differ so little from sample to sample that its outputs hardly depend on them; categories beside them are no numbers."""
    handed = [v for v in anatomy.inputs if prod(v.shape) > v.shape[0] and v.kind == "float"]
    largest = max((float(step.array(v.number).std(0).max()) for v in handed), default=1.0)
    if handed and 0 < largest < SMALL:
        source = step.last_deed(handed[0].number, "division") or handed[0].made or handed[0].bound
        yield Answer(
            None,
            f"inputs differ by {largest:.2g} at most",
            {"largest": largest},
            (handed[0].name,),
            source,
            part="small",
        )


def _within(step: Step, anatomy: Anatomy, outputs: Mapping[int, int], loss: float, rows: int) -> dict[str, float]:
    """Outputs given to other positions of the same sample, where the model is handed something for each position, and is compared with something that differs from
    one to the next."""
    each = rows_each(step, rows)
    if each == 1:
        return _along(step, anatomy, outputs, loss)
    if each < FEWEST_ROWS or not any(v.shape[:2] == (rows // each, each) for v in anatomy.inputs):
        return {}
    targets = [step.array(n) for n in anatomy.compared if prod(step.values[n].shape) == rows]
    if not any((t.reshape(-1, each) != t.reshape(-1, each)[:, :1]).any(1).mean() > 0.5 for t in targets):
        return {}
    draw = np.random.Generator(np.random.PCG64(2))
    arrays = {number: step.array(number) for number in outputs}
    losses = []
    for _ in range(SHUFFLES):
        order = np.concatenate([k * each + draw.permutation(each) for k in range(rows // each)])
        losses.append(step.loss_with({number: array[order] for number, array in arrays.items()}))
    return {"within": deviations(loss, losses), "positions": float(each)}


def _along(step: Step, anatomy: Anatomy, outputs: Mapping[int, int], loss: float) -> dict[str, float]:
    """The same, where positions have a dimension of their own."""
    shapes = {step.values[n].shape for n in outputs}
    shape, features = next(iter(shapes)), next(iter(outputs.values()))
    if len(shapes) != 1 or len(shape) != 3:
        return {}
    axis = 1 if features % 3 == 2 else 2
    size = shape[axis]
    beside = [
        step.array(n)
        for n in anatomy.compared
        if step.values[n].shape[:1] == shape[:1] and size in step.values[n].shape[1:]
    ]
    handed = any(v.shape[:1] == shape[:1] and size in v.shape[1:] for v in anatomy.inputs)
    if size < FEWEST_ROWS or shape.count(size) > 1 or not handed or not any(_differ_along(t, size) for t in beside):
        return {}
    draw = np.random.Generator(np.random.PCG64(2))
    arrays = {number: step.array(number) for number in outputs}
    losses = []
    for _ in range(SHUFFLES):
        order = np.argsort(draw.random((shape[0], size)), axis=1)
        index = np.expand_dims(order, 2 if axis == 1 else 1)
        losses.append(
            step.loss_with({number: np.take_along_axis(array, index, axis) for number, array in arrays.items()})
        )
    return {"within": deviations(loss, losses), "positions": float(size)}


def _differ_along(target: Array, size: int) -> bool:
    """Most samples of it differ from one position to the next."""
    moved = np.moveaxis(target, 1 + target.shape[1:].index(size), 1).reshape(len(target), size, -1)
    return bool((moved != moved[:, :1]).any((1, 2)).mean() > 0.5)


def _outweighing(step: Step, anatomy: Anatomy, constant: float, numbers: dict[str, float]) -> Op | None:
    """The op that adds a term which has been driven to nothing, and which costs more than all that can be gained once the outputs
    behind it differ from sample to sample by as much as 1: as long as that is so, they will not."""
    terms = anatomy.terms
    behind = {number: anatomy.outputs_behind(number) for number, _ in terms}
    if len(terms) < 2 or len(set(behind.values())) < 2:
        return None
    draw = np.random.Generator(np.random.PCG64(3))
    for number, op in terms:
        own = behind[number] - frozenset().union(*(behind[other] for other, _ in terms if other != number))
        with step.weighed({other: 0.0 for other, _ in terms if other != number}):
            now = step.loss_with({})
            varied = {n: _varied(step.array(n), draw) for n in own}
            then = step.loss_with(varied) if varied else now
        if now < AT_FLOOR * constant and then - now > OUTWEIGHS * constant:
            numbers["term"], numbers["term_of_varied_outputs"] = now, then
            return op
    return None


def _varied(array: Array, draw: np.random.Generator) -> Array:
    return np.asarray(array + draw.standard_normal(array.shape)).astype(array.dtype)


def _of_earlier(step: Step, outputs: dict[int, int], memory: Memory, vectors: list[Array]) -> float | None:
    """The loss of the constants that fitted earlier batches: they have not seen this one. Of classes that are rare in a batch of few rows, they say too much, for
    or against; less of the same is a constant as well."""
    known: list[list[Array]] = memory.setdefault("constants", [])
    alike = [old for old in known if [v.shape for v in old] == [v.shape for v in vectors]]
    known.append(vectors)
    if not alike:
        return None
    means = [np.mean(parts, axis=0) for parts in zip(*alike, strict=True)]
    losses = [
        step.loss_with(
            {
                number: _spread(mean * share, step.values[number].shape, dim)
                for (number, dim), mean in zip(outputs.items(), means, strict=True)
            }
        )
        for share in SHARES
    ]
    return min(losses)


def _spread(vector: Array, shape: tuple[int, ...], dim: int) -> Array:
    ones = [1] * len(shape)
    ones[dim] = -1
    return np.broadcast_to(vector.reshape(ones), shape)


_PRODUCTS = frozenset(("mm", "bmm", "matmul"))


def _towers(step: Step, anatomy: Anatomy) -> dict[int, int]:
    """Two outputs that are compared with each other, every row of one with every row of the other."""
    outputs = anatomy.outputs
    if len(outputs) != 2:
        return {}
    rows = {step.values[number].shape[0] for number in outputs}
    for op in step.ops:
        shape = step.values[op.outputs[0]].shape if op.outputs else ()
        if op.name in _PRODUCTS and len(rows) == 1 and shape[-2:] == (*rows, *rows) and len(op.inputs) == 2:
            behind = [anatomy.outputs_behind(number) for number in op.inputs]
            if all(len(b) == 1 for b in behind) and behind[0] != behind[1]:
                return outputs
    return {}


def _weaker(step: Step, towers: Mapping[int, int], loss: float, rows: int) -> Answer:
    """Of two outputs that are compared with each other, each is asked while the other stays: what one of them says may be learnt (which
    things are chosen often) though they have nothing to do with each other."""
    if loss <= 0:
        raise NotPossible("the loss is not a distance: it falls below 0")
    found = []
    for number, dim in towers.items():
        constant = step.fit({number: dim}).loss
        found.append(
            {"loss": loss, "constant": constant, "rows": float(rows), "apart": apart(step, [number], loss, rows)}
        )
    numbers = min(found, key=lambda n: n["apart"])
    ratio = loss / max(numbers["constant"], 1e-30)
    return Answer(
        ratio < BETTER or numbers["apart"] > APART,
        f"{ratio:.2f} of the loss of the best constant",
        numbers,
        source=step.loss_source,
    )


def apart(step: Step, outputs: Sequence[int], loss: float, rows: int) -> float:
    """How many deviations the loss lies below that of outputs changed about."""
    return deviations(loss, changed_about(step, outputs, rows))


def changed_about(step: Step, outputs: Sequence[int], rows: int) -> list[float]:
    """The loss with outputs given to other samples, several times. All rows of a sample go together, where it has several: what is said of a position in any sample is no knowledge
    of the sample. Where the loss compares outputs with each other, such as those of one row, it stays what it is."""
    draw = np.random.Generator(np.random.PCG64(0))
    arrays = {number: step.array(number) for number in outputs}
    each = rows_each(step, rows)
    losses = []
    for _ in range(SHUFFLES):
        order = (draw.permutation(rows // each)[:, None] * each + np.arange(each)).reshape(-1)
        losses.append(step.loss_with({number: array[order] for number, array in arrays.items()}))
    return losses


def deviations(loss: float, losses: Sequence[float]) -> float:
    spread = float(np.std(losses, ddof=1))
    return float((np.mean(losses) - loss) / max(spread, 1e-9 * abs(loss), 1e-30))


def rows_each(step: Step, rows: int) -> int:
    """Rows that one sample has, as far as that is known."""
    return rows // step.batch if step.batch >= FEWEST_ROWS and not rows % step.batch else 1


NOTHING_LEARNT = Experiment("nothing-learnt", "Is the model better than a constant?", ask, first=10, always=True)
