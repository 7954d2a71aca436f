"""Does every term of the loss teach the model something?

The loss is taken apart into what is added up. Healthy: each term that is computed with parameters has a gradient. One that has none is a
number that the model works out and never learns from: `detach()`, `no_grad` or `.data` stands on its way. Not meant is what also
reaches the loss by a way of its own (`x - x.detach()`), and whatever is multiplied, such as an advantage.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from tensonde.experiments.anatomy import CUTS, SHAPES, Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.step import NotPossible, Op, Step

_SUMS = frozenset(("add", "sub", "rsub", "add_", "sub_"))
_PASSING = frozenset(("mul", "div", "neg", "mean", "sum", "view", "squeeze", "alias", "clone", "_to_copy"))


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    found = terms = 0
    waiting = [step.loss]
    while waiting:
        number = waiting.pop()
        made = anatomy.makers(number)
        if len(made) != 1 or made[0].name not in _SUMS | _PASSING or anatomy.is_layer(made[0]):
            continue
        op = made[0]
        if op.name in _SUMS and len(op.inputs) == 2:
            terms += 1
            for term in op.inputs:
                cut = _cut(step, anatomy, term) if _is_term(step, anatomy, term) else None
                if cut is not None:
                    found += 1
                    yield Answer(
                        False, f"what {op.name} adds has no gradient", source=cut.source or op.source, module=cut.module, op=cut.name,
                        part="cut",
                    )  # fmt: skip
        waiting += [n for n in op.inputs if n in anatomy.trained]
    if not terms:
        raise NotPossible("the loss is not a sum")
    if not found:
        yield Answer(True, "each has a gradient")


def _is_term(step: Step, anatomy: Anatomy, value: int) -> bool:
    """One number that depends on parameters, and has no gradient."""
    known = step.values[value]
    return (
        prod(known.shape) == 1
        and known.kind == "float"
        and value in anatomy.computed
        and value not in anatomy.trained
        and value not in anatomy.weights
    )


def _cut(step: Step, anatomy: Anatomy, term: int) -> Op | None:
    """The op that ends the gradient on the way to a term, if what it is given gets to the loss by no other way."""
    found: Op | None = None
    waiting, seen = [term], set()
    while waiting:
        number = waiting.pop()
        if number in seen:
            continue
        seen.add(number)
        for op in anatomy.makers(number):
            given = [n for n in op.inputs if n in anatomy.trained and n not in anatomy.weights]
            if given and (op.name in CUTS or not op.grad):
                if any(_reaches(step, anatomy, n) for n in given):
                    return None
                found = op
            elif op.name not in SHAPES:
                waiting += [n for n in op.inputs if n in anatomy.computed and n not in anatomy.weights]
    return found


def _reaches(step: Step, anatomy: Anatomy, value: int) -> bool:
    """A gradient of the loss gets to it."""
    waiting, seen = [value], set()
    while waiting:
        number = waiting.pop()
        if number == step.loss:
            return True
        if number in seen:
            continue
        seen.add(number)
        waiting += [
            n
            for op in anatomy.users.get(number, [])
            if op.grad and op.name not in CUTS
            for n in op.outputs
            if n in anatomy.trained
        ]
    return False


TERMS = Experiment("terms", "Does every term of the loss have a gradient?", ask, times=2, alone=False)
