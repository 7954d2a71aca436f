"""Are positive and negative examples different?

Where two fields of ids are looked up in the same table of weights (what somebody chose, and what was drawn as its opposite) beside a third from another table (who chose it), pairs of the third with the
first come again, step after step, as the data are gone through. Healthy: pairs of the third with the second are hardly ever among them. Where they are there nearly as often as those of the first are,
the opposites were drawn from what was chosen, and there is nothing to tell apart.

Nothing is said before some dozens of pairs have come again.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.step import Array, NotPossible, Step, Value

FEWEST = 24
"""Pairs of the first that have come again."""
NEARLY = 0.6
"""Of their share: from which on the second are of the same kind. Opposites that are drawn from all things come there by chance."""
MOST = 1 << 16
Pairs = set[tuple[int, int]]


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    found = list(_roles(step, anatomy))
    if not found:
        raise NotPossible("no two fields of ids are looked up in one table beside a third")
    told: list[Answer] = []
    for who, chosen, drawn in found:
        known: Pairs = memory.setdefault(f"{who.name}, {chosen.name}", set())
        ours, theirs = _pairs(step, who, chosen), _pairs(step, who, drawn)
        again = sum(pair in known for pair in ours)
        seen = memory.setdefault(f"{who.name}, {chosen.name}, {drawn.name}", [0, 0, 0, 0])
        seen[0] += again
        seen[1] += len(ours)
        seen[2] += sum(pair in known for pair in theirs)
        seen[3] += len(theirs)
        if len(known) < MOST:
            known |= set(ours)
        if seen[0] < FEWEST or not seen[3]:
            continue
        first, second = seen[0] / seen[1], seen[2] / seen[3]
        numbers = {"of the first": first, "of the second": second, "pairs": float(len(known))}
        if second >= NEARLY * first:
            told.append(
                Answer(
                    False,
                    f"{second:.0%} of the pairs of {who.name} and {drawn.name} were pairs of {who.name} and {chosen.name} before, {first:.0%} of those of {chosen.name} themselves",
                    numbers,
                    names=(drawn.name, chosen.name),
                    source=drawn.made or drawn.bound or step.loss_source,
                    part="opposites",
                )
            )
        else:
            told.append(Answer(True, "negatives differ from positives", numbers))
    if len(told) < len(found):
        raise NotPossible("too few pairs have recurred so far")
    # One way round is enough: what is drawn at random comes again by chance only, and what is chosen is not among it.
    yield next((answer for answer in told if answer.healthy), told[0])


def _roles(step: Step, anatomy: Anatomy) -> Iterable[tuple[Value, Value, Value]]:
    """Who, what was chosen, and what was drawn: the latter two both ways round, the first that was given first."""
    ids = [v for v in anatomy.inputs if v.kind == "int" and v.name and len(v.shape) in (1, 2) and v.shape[0] >= 8]
    tables = {v.number: _tables(anatomy, v.number) for v in ids}
    for who in ids:
        for chosen in ids:
            for drawn in ids:
                same = tables[chosen.number] and tables[chosen.number] == tables[drawn.number]
                other = tables[who.number] and not tables[who.number] & tables[chosen.number]
                rows = who.shape == chosen.shape == drawn.shape[:1] and len(who.shape) == 1
                if same and other and rows and chosen is not drawn and not _equal(step, chosen, drawn):
                    yield who, chosen, drawn


def _tables(anatomy: Anatomy, value: int) -> frozenset[int]:
    """The weights that it is looked up in."""
    users = [op for op in anatomy.users.get(value, []) if op.name == "embedding"]
    return frozenset(n for op in users for n in op.inputs if n in anatomy.weights)


def _equal(step: Step, one: Value, other: Value) -> bool:
    return one.shape == other.shape and bool((step.array(one.number) == step.array(other.number)).mean() > NEARLY)


def _pairs(step: Step, who: Value, what: Value) -> list[tuple[int, int]]:
    a, b = step.array(who.number), step.array(what.number)
    wide: Array = np.broadcast_to(a.reshape(-1, *[1] * (b.ndim - 1)), b.shape)
    return list(zip(wide.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True))


OPPOSITES = Experiment("opposites", "Are positive and negative examples different?", ask, alone=False)
