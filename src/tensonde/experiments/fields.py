"""Are the fields of a batch what they are taken for?

Fields that are handed to models are compared with each other, and what the loss compares with is compared with the inputs, row by row.
Healthy: two fields are not equal, and where the target is the input, it is so in the same order. A target that a model's own output
was turned into says nothing of the data. A field that comes with the others and that no op takes has no influence on anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.sameness import rows_equal
from tensonde.experiments.step import Array, Op, Step, Value

FEWEST = 8
CLASSES = frozenset(("nll_loss_forward", "nll_loss2d_forward"))


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    reordered = [*_reordered(step, anatomy)] or [*_taken_apart(step, anatomy)] or [*_taken_anew(step, anatomy)]
    found = [*_all_the_same(step, anatomy), *_equal(step, anatomy), *reordered, *_own(step, anatomy)]
    found += [*_idle(step, anatomy), *_one_each(step, anatomy, memory), *_unchanging(step, anatomy, memory)]
    found += [*_too_far_on(step, anatomy)]
    wide = [v for v in anatomy.inputs if v.kind == "float" and v.bound is not None]
    yield from found or [
        Answer(
            True,
            "fields differ, and are used",
            names=(wide[0].name,) if wide else (),
            source=wide[0].bound if wide else None,
        )
    ]


def _tables(anatomy: Anatomy) -> list[Value]:
    return [v for v in anatomy.data if v.shape[0] >= FEWEST and v.kind in ("float", "int")]


def _all_the_same(step: Step, anatomy: Anatomy) -> Iterable[Answer]:
    """Nothing that models are handed differs from sample to sample, though other fields do."""
    handed = [v for v in _tables(anatomy) if v.into_model]
    wide = [v for v in handed if len(v.shape) >= 2 and prod(v.shape[1:]) > 1]
    beside = [v for v in _tables(anatomy) if not v.into_model and v.number in anatomy.before_loss]
    beside = [v for v in beside if any(v.shape[0] == w.shape[0] for w in wide)]
    if wide and all(rows_equal(step.array(v.number)) for v in handed) and any(
        not rows_equal(step.array(v.number)) for v in beside
    ):  # fmt: skip
        yield Answer(
            False, f"all {wide[0].shape[0]} rows of {wide[0].name} are equal", names=(wide[0].name,),
            source=wide[0].made or step.loss_source, part="same rows",
        )  # fmt: skip


def _equal(step: Step, anatomy: Anatomy) -> Iterable[Answer]:
    """Both are used as inputs. Labels that a model is handed, and compares with its outputs itself, may be its tokens."""
    layers = [n for op in step.ops if anatomy.is_layer(op) for n in op.outputs if n in anatomy.before_loss]
    behind = anatomy.ancestors(layers)
    handed = [v for v in _tables(anatomy) if v.into_model and prod(v.shape) > FEWEST and v.name and v.number in behind]
    for k, value in enumerate(handed):
        array = step.array(value.number)
        if rows_equal(array):
            continue
        for other in handed[k + 1 :]:
            if other.shape == value.shape and other.kind == value.kind and (step.array(other.number) == array).all():
                yield Answer(
                    False, f"{value.name} and {other.name} are equal", names=(value.name, other.name),
                    source=step.given_twice((value.name, other.name)) or value.made or other.made, part="equal",
                )  # fmt: skip


def _reordered(step: Step, anatomy: Anatomy) -> Iterable[Answer]:
    """The target is made of the rows of an input, each in the place of another."""
    inputs = {v.number: _rows(step.array(v.number)) for v in _tables(anatomy) if v.into_model and len(v.shape) >= 2}
    for op in step.ops:
        hot = [n for n in op.inputs if n in anatomy.trained and n not in anatomy.weights]
        if not hot or not any(n in anatomy.before_loss for n in op.outputs):
            continue
        for number in op.inputs:
            value = step.values[number]
            if number in anatomy.computed or number in inputs or len(value.shape) < 2 or value.shape[0] < FEWEST:
                continue
            if value.shape != step.values[hot[0]].shape:
                continue
            rows = _rows(step.array(number))
            for given in inputs.values():
                moved = sum(a != b for a, b in zip(rows, given, strict=False))
                if (
                    len(rows) == len(given)
                    and len(set(rows)) >= FEWEST
                    and sorted(rows) == sorted(given)
                    and moved > len(rows) / 2
                    and not (len(value.shape) >= 3 and _next_ones(rows, given))
                ):
                    yield Answer(
                        False, f"{moved} of {len(rows)} targets belong to other samples", {"rows": len(rows), "moved": moved},
                        source=step.loss_source or op.source, op=op.name, part="another order",
                    )  # fmt: skip
                    return


def _next_ones(rows: list[bytes], given: list[bytes]) -> bool:
    """Each is the next one, or the one before: where positions come first, a sequence is compared with itself, one position on."""
    return rows[:-1] == given[1:] or rows[1:] == given[:-1]


def _rows(array: Array) -> list[bytes]:
    return [row.tobytes() for row in array]


_TAKING = frozenset(("index", "index_select"))
_SHAPING = frozenset(
    ("view", "reshape", "squeeze", "unsqueeze", "_to_copy", "clone", "alias", "t", "_unsafe_view", "flatten")
)


def _taken_apart(step: Step, anatomy: Anatomy) -> Iterable[Answer]:
    """The rows of the target are put into another order, by an index that nothing else of the step is taken with."""
    orders: dict[bytes, list[Op]] = {}
    for op in step.ops:
        if op.name in _TAKING:
            for number in op.inputs[1:]:
                if step.values[number].kind == "int" and len(step.values[number].shape) == 1:
                    orders.setdefault(step.array(number).tobytes(), []).append(op)
    for users in orders.values():
        op = users[0]
        table, index = op.inputs[0], step.array(op.inputs[1])
        size = step.values[table].shape[0]
        out = op.outputs[0]
        if (
            len(users) > 1
            or size < FEWEST
            or len(index) != size
            or table in anatomy.computed
            or not _is_target(step, anatomy, out)
        ):
            continue
        moved = int((index != range(size)).sum())
        handed = any(v.shape[:1] == (size,) for v in anatomy.inputs)
        if handed and len(set(index.tolist())) == size and moved > size / 2:
            yield Answer(
                False, f"{moved} of {size} rows are in another place", {"rows": size, "moved": moved},
                source=op.source or step.loss_source, op=op.name, part="another order",
            )  # fmt: skip


def _taken_anew(step: Step, anatomy: Anatomy) -> Iterable[Answer]:
    """Rows of tables of the same length are taken for one batch, and those of one table are other rows than those of the rest: a target with another index than the inputs, or one of
    several inputs. Where a table is taken with the index of the others as well, further rows of it are mixed in on purpose (negatives, pairs). Rows that are the same
    distance on, all of them, come later in time; whether they belong there, `pairs` asks."""
    handed = anatomy.ancestors([v.number for v in anatomy.inputs]) & anatomy.ancestors(list(anatomy.outputs))
    taken = [(op, table, rows, op.outputs[0] in handed) for op, table, rows in _takings(step)]
    taken = [t for t in taken if t[3] or _is_target(step, anatomy, t[0].outputs[0])]
    for op, table, rows, is_input in taken:
        beside = [
            (t, r, i)
            for _, t, r, i in taken
            if t is not table and t.shape[:1] == table.shape[:1] and len(r) == len(rows) >= FEWEST
        ]
        others = {t.number: r for t, r, i in beside if is_input or i}
        all_alike = len({r.tobytes() for r in others.values()}) == 1
        enough = len(others) >= 2 and not all(i for _, _, i in beside) if is_input else bool(others)
        if not enough or not all_alike:
            continue
        theirs = next(iter(others.values()))
        if any((r == theirs).all() for _, t, r, _ in taken if t is table and len(r) == len(theirs)):
            continue
        moved = int((theirs != rows).sum())
        later = bool((rows - theirs == rows[0] - theirs[0]).all())
        unique = len(set(rows.tolist())) == len(set(theirs.tolist())) == len(rows)
        if is_input and not _meet(
            step, anatomy, op.outputs[0], [o.outputs[0] for o, t, _, i in taken if i and t.number in others]
        ):
            continue
        if moved > len(rows) / 2 and not later and (unique or not is_input):
            what = "the other fields" if is_input else "the inputs"
            yield Answer(
                False, f"{moved} of {len(rows)} rows of {table.name or 'a table'} are selected with a different index than {what}",
                {"rows": len(rows), "moved": moved}, names=(table.name,), source=op.source or step.loss_source, op=op.name,
                part="other rows" if is_input else "another order",
            )  # fmt: skip
            return


def _meet(step: Step, anatomy: Anatomy, one: int, others: list[int]) -> bool:
    """What is said of a row depends on the same row of both, so that the two are taken for one sample."""
    rows = step.values[one].shape[0]
    places: list[dict[int, bytes]] = []
    for number in (one, *others[:1]):
        changed = step.array(number).copy()
        other = next((k for k in range(rows) if (changed[k] != changed[rows // 2]).any()), None)
        if other is None:
            return False
        changed[rows // 2] = changed[other]
        (effects,) = step.effects([{number: changed}], still_norms=True)
        outputs = [anatomy.by_samples(n, rows) for n in anatomy.outputs]
        places.append(
            {
                n: effects[n].along[0].tobytes()
                for n in outputs
                if n in effects and effects[n].changed and effects[n].along
            }
        )
    return len(places) == 2 and any(places[1].get(n) == along for n, along in places[0].items())


def _takings(step: Step) -> Iterable[tuple[Op, Value, Array]]:
    """Ops that take rows of a table that was there before the step, by an index or as a slice, and which rows these are."""
    indices = {n for op in step.ops if op.name in _TAKING for n in op.inputs[1:]}
    for op in step.ops:
        if op.name not in (*_TAKING, "slice") or not op.inputs or step.values[op.inputs[0]].origin != "given":
            continue
        if op.outputs[0] in indices:  # rows of a list of rows
            continue
        table, part = step.values[op.inputs[0]], step.values[op.outputs[0]]
        if op.name != "slice":
            index = step.values[op.inputs[1]] if len(op.inputs) == 2 else None
            if index is not None and index.kind == "int" and len(index.shape) == 1:
                yield op, table, step.array(index.number)
        elif part.shape[1:] == table.shape[1:] and FEWEST <= part.shape[0] < table.shape[0]:
            first = _found(step.array(table.number), step.array(part.number))
            if first is not None:
                yield op, table, np.arange(first, first + part.shape[0])


def _found(table: Array, part: Array) -> int | None:
    """The only place where these rows stand in a table, one after the other."""
    flat, rows = table.reshape(len(table), -1), part.reshape(len(part), -1)
    places = np.flatnonzero((flat[: len(flat) - len(rows) + 1] == rows[0]).all(1))
    fitting = [int(k) for k in places if (flat[k : k + len(rows)] == rows).all()]
    return fitting[0] if len(fitting) == 1 else None


def _is_target(step: Step, anatomy: Anatomy, value: int) -> bool:
    """It goes on to a comparison with what the model gives, row by row, and into no model."""
    waiting, seen, compared = [value], set(), False
    while waiting:
        number = waiting.pop()
        if number in seen:
            continue
        seen.add(number)
        if step.values[number].into_model:
            return False
        for op in anatomy.users.get(number, []):
            if any(n in anatomy.trained for n in op.inputs):
                if _all_with_all(step, op):
                    return False
                compared |= any(n in anatomy.before_loss for n in op.outputs)
            else:
                waiting += op.outputs
    return compared


_PRODUCTS = frozenset(("mm", "bmm", "addmm", "baddbmm", "_cdist_forward", "_euclidean_dist"))


def _all_with_all(step: Step, op: Op) -> bool:
    """Each row meets every other, as where two sets of samples are compared as a whole: then their order does not matter."""
    sizes = [prod(step.values[n].shape) for n in op.inputs]
    return op.name in _PRODUCTS or prod(step.values[op.outputs[0]].shape) > max(sizes)


def _one_each(step: Step, anatomy: Anatomy, memory: Memory) -> Iterable[Answer]:
    """The classes that the loss compares with are one of each, the same in every step that was asked, of many more samples."""
    for op in step.ops:
        if op.name not in CLASSES or len(op.inputs) < 2 or not any(n in anatomy.before_loss for n in op.outputs):
            continue
        labels = step.array(op.inputs[1])
        rows = max((v.shape[0] for v in anatomy.inputs), default=0)
        alike = memory.setdefault("labels", labels.tobytes()) == labels.tobytes()
        if labels.ndim == 1 and 3 <= len(labels) == len(set(labels.tolist())) and rows >= 10 * len(labels) and alike:
            masks = [v for v in step.values if v.kind == "bool" and v.shape == (rows,) and v.bound is not None]
            yield Answer(
                False, f"{len(labels)} of {rows}", {"labels": len(labels), "rows": rows}, op=op.name, part="one each",
                source=masks[0].bound if masks else step.loss_source,
            )  # fmt: skip


def _too_far_on(step: Step, anatomy: Anatomy) -> Iterable[Answer]:
    """The targets are the tokens that a model is handed, two or three positions on, and none are one position on."""
    for value in anatomy.inputs:
        if value.kind != "int" or len(value.shape) != 2 or value.shape[0] < 4 or value.shape[1] < FEWEST:
            continue
        tokens = step.array(value.number)
        compared = [
            v.number
            for v in step.values
            if v.kind == "int"
            and not v.into_model
            and v.number in anatomy.before_loss
            and prod(v.shape) == prod(value.shape)
        ]
        targets = [step.array(number).reshape(tokens.shape) for number in compared]
        on = {
            k for target in targets for k in (0, 1, 2, 3) if (target[:, : tokens.shape[1] - k] == tokens[:, k:]).all()
        }
        if on and min(on) > 1 and (tokens[:, 1:] != tokens[:, :-1]).mean() > 0.2:
            yield Answer(
                False, f"{min(on)} positions on", {"positions": min(on)}, names=(value.name,),
                source=step.parting([value.number], compared, loose=True) or value.bound or step.loss_source,
                part="too far on",
            )  # fmt: skip


_SLICING = frozenset(("slice", "narrow", "index", "index_select", "select"))


def _unchanging(step: Step, anatomy: Anatomy, memory: Memory) -> Iterable[Answer]:
    """The rows of a table that models are handed are the same in every step, though it has more, and others are handed or compared
    with that change from step to step."""
    tables = [v for v in _tables(anatomy) if v.into_model or v.number in anatomy.before_loss]
    now = {k: (v.shape, step.array(v.number).tobytes()) for k, v in enumerate(tables) if v.kind in ("float", "int")}
    before: list[dict[int, tuple[tuple[int, ...], bytes]]] = memory.setdefault("tables", [])
    alike = [
        known
        for known in before
        if {k: shape for k, (shape, _) in known.items()} == {k: s for k, (s, _) in now.items()}
    ]
    before.append(now)
    if not alike:
        return
    still = {k for k in now if all(known[k] == now[k] for known in alike)}
    for k in still:
        value = tables[k]
        op = step.ops[value.op] if value.op is not None else None
        if op is None or op.name not in _SLICING or not value.into_model or prod(value.shape[1:]) < 2:
            continue
        rows = value.shape[0]
        larger = step.values[op.inputs[0]].shape[:1] > (rows,)
        moving = [v for j, v in enumerate(tables) if j not in still and v.shape[0] == rows]
        if larger and moving and not rows_equal(step.array(value.number)):
            yield Answer(
                False, f"the same {rows} rows in every step", {"rows": rows}, names=(value.name, *(v.name for v in moving[:1])),
                source=op.source or step.loss_source, op=op.name, part="unchanging",
            )  # fmt: skip


def _own(step: Step, anatomy: Anatomy) -> Iterable[Answer]:
    """Classes that are predicted are the classes that the same output says. Those that are drawn by what it says are actions, which something else weighs."""
    for op in step.ops:
        if op.name not in CLASSES or len(op.inputs) < 2 or not any(n in anatomy.before_loss for n in op.outputs):
            continue
        scores, target = op.inputs[:2]
        if target not in anatomy.computed or step.values[target].kind != "int":
            continue
        outputs = set(anatomy.outputs)
        behind = anatomy.ancestors([target])
        after = behind - anatomy.ancestors(outputs)
        drawn = any(made.random for number in after for made in anatomy.makers(number))
        if behind & anatomy.ancestors([scores]) & outputs and not drawn:
            yield Answer(
                False, "the targets are the model's own output", source=op.source, op=op.name, part="own output"
            )


def _idle(step: Step, anatomy: Anatomy) -> Iterable[Answer]:
    targets = [v for v in _tables(anatomy) if not v.into_model and v.number in anatomy.before_loss and v.name]
    rows = {v.shape[0] for v in targets}
    for value in step.idle:
        if len(rows) == 1 and value.shape[:1] == tuple(rows):
            yield Answer(
                False, f"{value.name} is used nowhere", names=(value.name,), source=step.loss_source, part="idle"
            )


FIELDS = Experiment("fields", "Are the fields of a batch what they are taken for?", ask, times=3, alone=False)
