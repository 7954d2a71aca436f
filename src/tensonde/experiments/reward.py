"""Where actions are weighed by what they brought: does the loss fall when the better ones become more likely?

Policy gradients multiply the log-probability of each action with its return or advantage. Each log-probability (or ratio of probabilities) is raised by a
little, in proportion to its weight, and the loss is computed again. Healthy: it falls. Where it rises, the sign is wrong, and what is rewarded is unlearnt.

And is the action that acts the one whose probability is trained? Healthy: each draw of an action gets to a log-probability, or none does. Where one
distribution is drawn from twice, and only one draw gets there, the other one acts.

The program's text says that the weights are good things: the line has a variable such as `advantage`, `returns`, `rewards`. Costs, where the sign is the other
one, and weights of samples are not meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.step import NotPossible, Op, Step

GOOD = re.compile(r"\b\w*(?:advant|reward|returns|td_?err|gae)\w*\b|\badvs?\b|\brets?\b|\bdeltas?\b", re.IGNORECASE)
BAD = re.compile(r"cost|penalt|regret|nll|energy|\bloss(?:es)?\b(?!\s*[=+])", re.IGNORECASE)
RAISE = 1e-2
_DRAWS = frozenset(("multinomial",))
_CHOOSING = frozenset(("gather", "index", "index_select", "nll_loss_forward"))
_SHAPING = frozenset(
    ("view", "reshape", "expand", "squeeze", "unsqueeze", "alias", "clone", "_unsafe_view", "t", "transpose", "detach")
)


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    products = [(op, pair) for op in step.ops if (pair := _weighed(step, anatomy, op)) is not None]
    if not products:
        raise NotPossible("no action is weighed by what it brought")
    for op, (chance, weight) in products[:4]:
        array, weights = step.array(chance), step.array(weight)
        size = float(np.abs(weights).max())
        raised = (array + RAISE * weights / size).astype(array.dtype)
        change = step.loss_with({chance: raised}) - step.loss_with({})
        if not change:
            continue
        numbers = {"change": change, "weights": float(np.abs(weights).mean())}
        if change > 0:
            yield Answer(False, "the loss rises when better actions become more likely", numbers, source=op.source, module=op.module, op=op.name, part="sign")  # fmt: skip
            return
        yield Answer(True, "better actions become more likely", numbers)
    if (twice := _drawn_twice(step, anatomy)) is not None:
        yield Answer(False, "an action is drawn twice", source=twice.source, module=twice.module, op=twice.name, part="drawn twice")  # fmt: skip


def _weighed(step: Step, anatomy: Anatomy, op: Op) -> tuple[int, int] | None:
    """What a product on the way to the loss is trained by, and what weighs it."""
    if op.name != "mul" or len(op.inputs) != 2 or not anatomy.before_loss.intersection(op.outputs) or op.source is None:
        return None
    code = op.source.code or ""
    if not GOOD.search(code) or BAD.search(code):
        return None
    values = step.values
    for chance, weight in (op.inputs, op.inputs[::-1]):
        if (
            chance in anatomy.trained
            and weight not in anatomy.trained
            and values[weight].kind == "float"
            and values[chance].shape == values[weight].shape
            and values[chance].shape
            and not _scores(step, anatomy, weight)
            and float(np.ptp(step.array(weight))) > 0
        ):
            return chance, weight
    return None


def _scores(step: Step, anatomy: Anatomy, weight: int) -> bool:
    """It weighs by something that was not brought: a mask, or what only has the values 0 and 1."""
    array = step.array(weight)
    return bool(np.isin(array, (0.0, 1.0)).all())


def _drawn_twice(step: Step, anatomy: Anatomy) -> Op | None:
    """The draw that gets to a log-probability, where another draw by the same probabilities does not."""
    draws: dict[int, list[Op]] = {}
    for op in step.ops:
        if op.name in _DRAWS and op.inputs and op.inputs[0] in anatomy.computed:
            draws.setdefault(_origin(step, anatomy, op.inputs[0]), []).append(op)
    for several in draws.values():
        trained = [op for op in several if _chooses(step, anatomy, op)]
        if len(several) == 2 and len(trained) == 1:
            return trained[0]
    return None


def _origin(step: Step, anatomy: Anatomy, value: int) -> int:
    while (made := anatomy.makers(value)) and made[-1].name in _SHAPING:
        value = made[-1].inputs[0]
    return value


def _chooses(step: Step, anatomy: Anatomy, draw: Op) -> bool:
    """What it draws chooses among trained values that lead to the loss."""
    waiting, seen = list(draw.outputs), set()
    while waiting:
        number = waiting.pop()
        if number in seen:
            continue
        seen.add(number)
        for op in anatomy.users.get(number, []):
            if (
                op.name in _CHOOSING
                and any(n in anatomy.trained for n in op.inputs)
                and anatomy.before_loss.intersection(op.outputs)
            ):
                return True
            if step.values[number].kind == "int":
                waiting += [n for n in op.outputs if step.values[n].kind == "int"]
    return False


REWARD = Experiment("reward", "Do better actions become more likely?", ask, times=3, alone=False)
