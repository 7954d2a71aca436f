"""Are samples independent of each other?

One sample of the inputs is exchanged for another, and then all but that one, and the step is computed again, with batch norms that use
what they have gathered. Healthy: a sample's outputs change with itself only, to the last bit. Where others change, the first op at which the change crosses from one
sample to the next is named. Not claimed where samples meet by an index that the model was given (graphs), and where it is not
certain which dimension holds the samples.

And in a sequence whose targets are its own later tokens: does a token change what is said before it? Where the targets are tokens that a
model is handed, position by position: does a token change what is said of its own position, and nothing before it? Then it is
only copied. An autoencoder, whose tokens all pass one state, changes everywhere. Where only some positions count, and others hold tokens of the same kinds, those that count were chosen
to be hidden: then the model must not be handed them.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.fields import CLASSES
from tensonde.experiments.step import Array, Effect, NotPossible, Op, Step, Value

FEWEST = 4
FEWEST_COUNTED = 16
"""Positions that the loss compares at."""
_BY_INDEX = frozenset(
    ("index", "index_select", "index_add", "index_add_", "scatter_add", "scatter_add_", "scatter", "gather", "embedding",
     "scatter_reduce", "index_put", "index_put_", "_index_put_impl_", "segment_reduce", "sort", "topk", "argsort", "cumsum",
     "roll", "flip", "_sparse_mm", "index_reduce", "index_copy", "scatter_", "scatter_reduce_", "_pack_padded_sequence")
)  # fmt: skip


_REDUCING = frozenset(
    ("amax", "amin", "max", "min", "mean", "sum", "logsumexp", "prod", "median", "var", "std", "norm", "linalg_vector_norm", "aminmax")
)  # fmt: skip
_MASKING = frozenset(("masked_fill", "masked_fill_", "where", "add", "add_", "mul"))
_SHAPING = frozenset(("view", "_unsafe_view", "reshape", "alias", "clone", "_reshape_alias", "unsqueeze", "squeeze"))


_PACKING = frozenset(("sort", "argsort", "index_select", "index", "_pack_padded_sequence"))


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    inputs = [v for v in anatomy.inputs if v.kind in ("float", "int")]
    rows = step.batch
    asked = [v for v in inputs if v.shape[0] == rows]
    made = [anatomy.by_samples(n, rows) for n in anatomy.outputs]
    outputs = [n for n in made if step.values[n].shape[:1] == (rows,) and n != step.loss]
    found = [*_sequences(step, anatomy, inputs)]
    if rows < FEWEST or not asked or not outputs:
        if not found:
            raise NotPossible("it is not known which dimension holds the samples")
    else:
        yield _samples(step, anatomy, asked, outputs, rows)
    yield from found


def _sequences(step: Step, anatomy: Anatomy, inputs: list[Value]) -> Iterable[Answer]:
    """Of tokens, samples by positions or the other way round. What is compared with them tells which is which."""
    for value in inputs:
        if value.kind != "int" or len(value.shape) != 2 or min(value.shape) < FEWEST:
            continue
        outputs = [n for made in anatomy.outputs if (n := _unfolded(step, anatomy, made, value.shape)) is not None]
        if not outputs:
            continue
        found = _future(step, anatomy, value, outputs) or _copied(step, anatomy, value, outputs)
        if found is not None:
            yield found
            return


def _unfolded(step: Step, anatomy: Anatomy, output: int, shape: tuple[int, ...]) -> int | None:
    """A layer's output, with samples and positions in dimensions of their own."""
    waiting = [output]
    while waiting:
        number = waiting.pop(0)
        if step.values[number].shape[:2] == shape:
            return number
        waiting += [
            n
            for op in anatomy.users.get(number, [])
            if op.name in _SHAPING
            for n in op.outputs
            if n != number and n > number
        ]
    return None


def _samples(step: Step, anatomy: Anatomy, inputs: list[Value], outputs: list[int], rows: int) -> Answer:
    """One sample is exchanged, and then all but that one."""
    one = rows // 2
    alone, around = {}, {}
    packed = _packs(step)
    for value in inputs:
        if packed and value.kind == "int" and len(value.shape) == 1:
            continue  # lengths: with others, a recurrent layer takes other ops
        array = step.array(value.number)
        other = next((k for k in range(rows) if (array[k] != array[one]).any()), None)
        if other is not None:
            alone[value.number] = array.copy()
            alone[value.number][one] = array[other]
            around[value.number] = np.roll(array, 1, axis=0)
            around[value.number][one] = array[one]
    if not alone:
        raise NotPossible("all samples are equal")
    from_one, to_one = step.effects([alone, around], still_norms=True)
    if any(_others(from_one[n], 0, one, rows) for n in outputs):
        crossing = _crossing(step, anatomy, from_one, alone, one, outputs, single=True)
    elif any(_at(to_one[n], 0, one, rows) for n in outputs):
        crossing = _crossing(step, anatomy, to_one, around, one, outputs, single=False)
    else:
        return Answer(True, "only the changed sample gets a different output")
    if crossing is None:
        return Answer(None, "samples interact in a way that Tensonde does not follow")
    if crossing.name in _BY_INDEX:
        return Answer(None, f"samples interact through an index ({crossing.name})")
    return Answer(
        False, "a sample changes the outputs of others", source=crossing.source, module=crossing.module, op=crossing.name,
        part="samples",
    )  # fmt: skip


def _packs(step: Step) -> bool:
    return any(op.name == "_pack_padded_sequence" for op in step.ops)


def _at(effect: Effect, dim: int, one: int, rows: int) -> bool:
    """This very sample changed."""
    return (
        effect.changed and len(effect.along) > dim and len(effect.along[dim]) == rows and bool(effect.along[dim][one])
    )


def _others(effect: Effect, dim: int, one: int, rows: int) -> bool:
    if not effect.changed or len(effect.along) <= dim or len(effect.along[dim]) != rows:
        return False
    along = effect.along[dim].copy()
    along[one] = False
    return bool(along.any())


def _crossing(
    step: Step, anatomy: Anatomy, effects: dict[int, Effect], changes: dict[int, Array], one: int, outputs: list[int], *, single: bool
) -> Op | None:  # fmt: skip
    """The first op on the way that takes a change of one sample only (or of all but one), and gives one that is not."""
    rows = step.batch
    crosses = _others if single else _at
    behind = anatomy.ancestors(outputs)
    packed, sorting = _packs(step), None
    kept: dict[int, int] = dict.fromkeys(changes, 0)
    """Values in which the change stays where it was made: the dimension of samples."""
    for op in step.ops:
        touched = [n for n in op.inputs if n in kept or (n in effects and effects[n].changed)]
        if not touched or not any(n in behind for n in op.outputs):
            continue
        for number in op.outputs:
            effect = effects.get(number)
            if effect is None or not effect.changed:
                continue
            shape = step.values[number].shape
            dims = [d for d, size in enumerate(shape) if size == rows and not crosses(effect, d, one, rows)]
            if dims:
                kept[number] = dims[0]
            elif all(n in kept for n in touched):
                if op.name in _REDUCING and all(step.values[n].shape[kept[n]] == rows for n in touched):
                    return op  # the dimension of samples is gone: no other can hold them
                folded = [d for d, size in enumerate(shape) if size > rows and size % rows == 0]
                if any(_is_one_of(rows, effect.along[d] if single else ~effect.along[d], single) for d in folded):
                    kept[number] = folded[0]  # samples and positions in one dimension
                    continue
                if rows in shape or all(size % rows for size in shape):
                    if not packed or op.name not in _PACKING:
                        return op
                    sorting = sorting or op  # samples are brought back into their order behind it
    return sorting


def _is_one_of(rows: int, along: Array, at_most: bool) -> bool:
    """So many places belong to one sample of so many; at least that, or at most."""
    share = len(along) // rows
    return bool(along.sum() <= share if at_most else along.sum() >= share)


def _future(step: Step, anatomy: Anatomy, value: Value, outputs: list[int]) -> Answer | None:
    """Only where the targets are the tokens, one position on."""
    array = step.array(value.number)
    length = value.shape[1]
    if not _shifted(step, anatomy, array):
        return None
    at = length // 2
    changed = array.copy()
    changed[:, at:] = changed[:, at:][:, ::-1]
    if not (changed != array).any():
        return None
    effects = step.effects([{value.number: changed}], still_norms=True)[0]
    if not any(effects[n].changed and effects[n].along[1][:at].any() for n in outputs if n in effects):
        return Answer(True, "later tokens change no output before them", part="future")
    op = _first_early(step, anatomy, effects, length, at)
    return Answer(
        False, "later tokens change outputs before them", source=op.source if op else None,
        module=op.module if op else "", op=op.name if op else "", part="future",
    )  # fmt: skip


def _copied(step: Step, anatomy: Anatomy, value: Value, outputs: list[int]) -> Answer | None:
    """The targets are what a model is handed, position by position, and each output sees its own, and none after it. Positions are the
    dimension along which a change spreads; along samples it does not."""
    array = step.array(value.number)
    chosen = _compared_with_themselves(step, anatomy, array)
    if chosen is not None and _are_picked(array, chosen):
        return _not_hidden(step, anatomy, value, outputs, chosen)
    beside = anatomy.before_loss - anatomy.ancestors(
        [value.number, *outputs]
    )  # what the tokens were made of is no target
    if chosen is None and not any(_same_tokens(step, step.values[number], array) for number in beside):
        return None
    spread = {}
    for dim in (0, 1):
        at = value.shape[dim] // 2
        changed = np.moveaxis(array.copy(), dim, 0)
        changed[at] = changed[at][::-1].copy()
        changes = {value.number: np.moveaxis(changed, 0, dim)}
        effects = step.effects([changes], still_norms=True)[0]
        seen = [effects[n].along[dim] for n in outputs if n in effects and effects[n].changed]
        if (changes[value.number] != array).sum() < FEWEST or not seen or not seen[0][at]:
            return None
        spread[dim] = bool(seen[0][:at].any()), bool(seen[0][at + 1 :].any())
    wide = [spread[dim] for dim in spread if any(spread[dim])]
    if len(wide) > 1:
        return None
    if wide and wide[0][0]:
        return Answer(True, "a token changes more than its own position and those after it", part="copied")
    return Answer(
        False, "the targets are the model's input tokens, position by position",
        names=(value.name,), source=value.bound or step.loss_source, part="copied",
    )  # fmt: skip


def _compared_with_themselves(step: Step, anatomy: Anatomy, tokens: Array) -> Array | None:
    """At which positions the loss compares, where it compares with the token that the model is handed at each of them."""
    for op in step.ops:
        if op.name not in CLASSES or len(op.inputs) < 2 or not anatomy.before_loss.intersection(op.outputs):
            continue
        labels = step.array(op.inputs[1])
        counted = np.ones(tokens.shape, bool)
        taken = [made for made in anatomy.makers(op.inputs[1]) if made.name == "index" and len(made.inputs) == 2]
        if taken and step.values[taken[-1].inputs[1]].kind == "bool":  # `tokens[mask]`
            labels, counted = (step.array(number) for number in taken[-1].inputs)
            counted = counted.reshape(-1)
        if labels.size != tokens.size or counted.size != tokens.size:
            continue
        labels = labels.reshape(tokens.shape)
        counted = counted.reshape(tokens.shape) & (labels >= 0)
        if counted.sum() >= FEWEST_COUNTED and (labels == tokens)[counted].all():
            return counted
    return None


def _are_picked(tokens: Array, counted: Array) -> bool:
    """Positions that do not count hold tokens of the same kinds as those that do: they are not left out for what they hold, as padding is."""
    return int(np.isin(tokens[~counted], tokens[counted]).sum()) >= FEWEST


def _not_hidden(step: Step, anatomy: Anatomy, value: Value, outputs: list[int], counted: Array) -> Answer | None:
    """Not where all tokens pass one state, from which some of them are to be found again."""
    changed = step.array(value.number).copy()
    changed[counted] = np.roll(changed[counted], 1)
    effects = step.effects([{value.number: changed}], still_norms=True)[0]
    if not any(effects[n].changed and _keeps_positions(step, anatomy, value, n) for n in outputs if n in effects):
        return None
    behind = anatomy.ancestors([value.number])
    line = value.made or next((step.values[n].made for n in sorted(behind) if step.values[n].made), None)
    return Answer(
        False, "the tokens that are chosen to be predicted are not hidden from the model", {"counted": float(counted.sum())},
        names=(value.name,), source=line or value.bound or step.loss_source, part="not hidden",
    )  # fmt: skip


def _keeps_positions(step: Step, anatomy: Anatomy, value: Value, output: int) -> bool:
    """The tokens get there by a way on which there is something for each position all along."""
    rows, length = value.shape
    seen: set[int] = set()
    waiting = [value.number]
    while waiting:
        number = waiting.pop()
        shape = step.values[number].shape
        if number not in seen and (length in shape or shape[:1] == (rows * length,)):
            seen.add(number)
            waiting += [n for op in anatomy.users.get(number, []) for n in op.outputs]
    return output in seen


def _same_tokens(step: Step, value: Value, tokens: Array) -> bool:
    """It holds these tokens, in a shape of its own, and is not handed to a model: it is compared with."""
    if value.kind != "int" or value.into_model or prod(value.shape) != tokens.size:
        return False
    return bool((step.array(value.number).reshape(-1) == tokens.reshape(-1)).all())


def _first_early(step: Step, anatomy: Anatomy, effects: dict[int, Effect], length: int, at: int) -> Op | None:
    """The first op that gives positions something of later ones. Where that is a product with weights of positions for positions, the op
    that was to hide the later ones: what made the mask, if it is known."""
    for op in step.ops:
        for number in op.outputs:
            effect = effects.get(number)
            if effect is None or not effect.changed:
                continue
            dims = [d for d, size in enumerate(step.values[number].shape) if size == length]
            if len(dims) == 1 and effect.along[dims[0]][:at].any():
                square = [n for n in op.inputs if step.values[n].shape.count(length) >= 2 and n in effects]
                return (_hiding(step, anatomy, square[0], length) if square else None) or op
    return None


def _hiding(step: Step, anatomy: Anatomy, weights: int, length: int) -> Op | None:
    waiting, seen = [weights], set()
    while waiting:
        number = waiting.pop(0)
        if number in seen or step.values[number].shape.count(length) < 2:
            continue
        seen.add(number)
        for op in anatomy.makers(number):
            masks = [n for n in op.inputs if n not in anatomy.computed and step.values[n].shape.count(length) >= 2]
            if op.name in _MASKING and masks:
                made = [op for op in anatomy.makers(masks[0]) if op.name not in _SHAPING]
                return made[-1] if made else op
            waiting += op.inputs
    return None


def _shifted(step: Step, anatomy: Anatomy, tokens: Array) -> bool:
    ahead = tokens[:, 1:]
    for value in step.values:
        if value.kind != "int" or value.number not in anatomy.before_loss or len(value.shape) != 2:
            continue
        if value.shape == ahead.shape and (step.array(value.number) == ahead).all():
            return True
        if value.shape == tokens.shape and value.shape[1] > 1:
            array = step.array(value.number)
            if (array[:, :-1] == ahead).mean() > 0.95 and not (array == tokens).all():
                return True
    return False


INDEPENDENCE = Experiment("independence", "Are samples independent of each other?", ask, times=2)
