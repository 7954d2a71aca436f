"""Where actions are weighed by what they brought: does the loss fall when the better ones become more likely?

Policy gradients multiply the log-probability of each action with its return or advantage. Each log-probability (or ratio of probabilities) is raised by a
little, in proportion to its weight, and the loss is computed again. Healthy: it falls. Where it rises, the sign is wrong, and what is rewarded is unlearnt. A cross entropy or a squared
distance, in the place of the log-probability, is lowered.

And is the action that acts the one whose probability is trained? Healthy: each draw of an action gets to a log-probability, or none does. Where one
distribution is drawn from twice, and only one draw gets there, the other one acts.

The program's text says that the weights are good things: what is multiplied with the log-probability has a variable such as `advantage`, `returns`, `rewards`. A minus before it, on the
same line, is taken off first. Costs, where the sign is the other one, and weights of samples, such as those of errors
that are learnt from again, are not meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.step import NotPossible, Op, Step
from tensonde.program.queries import products

GOOD = re.compile(r"\b\w*(?:advant|reward|returns|td_?err|gae)\w*\b|\badvs?\b|\brets?\b|\bdeltas?\b", re.IGNORECASE)
BAD = re.compile(r"cost|\bneg|minus|penalt|regret|nll|energy|\bloss(?:es)?\b(?!\s*[=+])", re.IGNORECASE)
RAISE = 1e-2
_TURNING = frozenset(("neg", "mul", "div", "detach", "alias", "clone"))
_TERMS = frozenset(("add", "sub", "mul", "div", "neg"))
_ALONG = frozenset((
    "exp", "log", "sum", "mean", "squeeze", "unsqueeze", "view", "reshape", "_unsafe_view", "expand", "alias", "clone", "_to_copy", "transpose", "permute", "t", "clamp", "clamp_min",
    "clamp_max", "minimum", "maximum", "masked_fill", "cat", "stack", "slice",
))  # fmt: skip
"""Ops that give more where they are given more."""
_CHANCES = frozenset(
    ("gather", "index", "index_select", "select", "_log_softmax", "_softmax", "sigmoid", "log_sigmoid_forward")
)
_DISTANCES = frozenset((
    "nll_loss_forward", "nll_loss2d_forward", "mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "pow", "abs",
))  # fmt: skip
_DRAWS = frozenset(("multinomial",))
_CHOOSING = frozenset(("gather", "index", "index_select", "nll_loss_forward"))
_SHAPING = frozenset(
    ("view", "reshape", "expand", "squeeze", "unsqueeze", "alias", "clone", "_unsafe_view", "t", "transpose", "detach")
)


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    products = [(op, pair) for op in step.ops if (pair := _weighed(step, anatomy, op)) is not None]
    if not products:
        raise NotPossible("no action is weighted by its reward")
    for op, (chance, weight) in products[:4]:
        array = step.array(chance)
        weights = _sense(step, anatomy, chance) * _sign(step, anatomy, op, weight) * step.array(weight)
        if not weights.any():
            continue
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
    if not GOOD.search(op.source.code) or BAD.search(op.source.code):
        return None
    sides = products(op.source.file, op.source.line)
    values = step.values
    for place in (1, 0):
        chance, weight = op.inputs[1 - place], op.inputs[place]
        if (
            chance in anatomy.trained
            and any(GOOD.search(side[place]) for side in sides)
            and weight not in anatomy.trained
            and values[weight].kind == "float"
            and values[chance].shape == values[weight].shape
            and values[chance].shape
            and not _scores(step, anatomy, weight)
            and float(np.ptp(step.array(weight))) > 0
        ):
            return chance, weight
    return None


def _sign(step: Step, anatomy: Anatomy, product: Op, weight: int) -> int:
    """-1 where the weight is the good thing with a minus before it, on the same line."""
    sign = 1
    while len(made := anatomy.makers(weight)) == 1 and made[0].name in _TURNING and len(made[0].inputs) == 1:
        before, after = step.array(made[0].inputs[0]), step.array(weight)
        if made[0].source != product.source or before.shape != after.shape:
            break
        if float((before * after).sum()) < 0:
            sign = -sign
        weight = made[0].inputs[0]
    return sign


def _sense(step: Step, anatomy: Anatomy, chance: int) -> int:
    """1 where it rises with the probability of what was done; -1 where it falls, as a cross entropy and a squared distance do; 0 where that is not known."""
    sign = 1
    while len(made := anatomy.makers(chance)) == 1:
        op = made[0]
        given = [n for n in op.inputs if n in anatomy.trained and n not in anatomy.weights]
        if op.name in _CHANCES:
            return sign
        if op.name in _DISTANCES or (op.name == "mul" and op.inputs[0] == op.inputs[-1] and len(op.inputs) == 2):
            return -sign
        if not given or (op.name not in _ALONG and op.name not in _TERMS):
            return 0
        if op.name == "neg" or (op.name == "sub" and given[0] != op.inputs[0]):
            sign = -sign
        elif op.name in ("mul", "div"):
            before, after = step.array(given[0]), step.array(chance)
            if len(given) > 1 and op.name == "mul":
                return 0
            if before.shape == after.shape and float((before * after).sum()) < 0:
                sign = -sign
        chance = given[0]
    return 0


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
