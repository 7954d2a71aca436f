"""Who changes which weights: what is held, used, and changed by nothing."""

from __future__ import annotations

import re
from math import isclose, prod, sqrt

from tensonde.diagnose.analysis.answers import answers
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import some
from tensonde.model.facts import ParameterFact
from tensonde.model.finding import Finding

LITTLE = 0.55
"""Of the loss of the best constant: random features can be good enough, and a training that gets below this has no complaint."""
PART = 0.2
"""Of all weights: what is frozen must be worth mentioning."""
FEWEST_VALUES = 256
"""In a weight whose spread is compared with that of its initialisation."""
NEAR = 0.12
_ON_PURPOSE = re.compile(
    r"reservoir|random|fixed|frozen|freeze|lora|adapter|prompt|probe|target|teacher|momentum|hash|project|fourier|echo|pretrain", re.IGNORECASE
)  # fmt: skip


@rule("frozen-at-random-values", severity="warning", phase="optimizer", unless=("last-layer-frozen",))
def frozen_at_random_values(case: Case) -> list[Finding]:
    """Framework layers that an optimizer holds do not require a gradient, never got one, and still have the spread of
    their random initialization: nothing was loaded into them, they learn nothing, and what they pass on is random;
    and the training learns little. Frozen weights are supposed to be weights that were learned before. Silent if
    anything was loaded or trained before, if layers are in eval mode beside others that train, if the optimizer got
    only what is trained, or if a name says that it is intended (a reservoir, a random projection, adapters).
    """
    facts = case.facts
    weights = {n: f for n, f in facts.parameters.items() if len(f.shape) >= 2 and f.registered}
    trained = [n for n, f in weights.items() if f.requires_grad and f.optimizers]
    frozen = {n: f for n, f in weights.items() if _is_frozen(case, n, f)}
    learnt = [
        a.numbers["loss"] / a.numbers["constant"]
        for a in answers(case, "nothing-learnt")
        if a.step >= max(10, case.steps // 5) and a.numbers.get("constant", 0) > 0
    ]
    if not learnt or min(learnt) < LITTLE:
        return []
    if not trained or not frozen or any(f.loaded for f in facts.parameters.values()):
        return []
    if any(_ON_PURPOSE.search(f"{n} {f.owner_type}") for n, f in weights.items()) or len(case.stepping) != 1:
        return []
    held = sum(prod(f.shape) for f in frozen.values())
    if held < PART * sum(prod(f.shape) for f in weights.values()) or not all(
        _is_random(case, n, f) for n, f in frozen.items()
    ):
        return []
    owners = list(dict.fromkeys(f.owner for f in frozen.values()))
    largest = max(frozen, key=lambda name: prod(frozen[name].shape))
    return [
        case.finding(
            f"{some(owners)} {'are' if len(owners) > 1 else 'is'} frozen at random initial values: nothing was loaded, and no gradient gets there",
            "Set requires_grad to True, or load the weights you want to keep.",
            site=f"{largest}:value",
            source=facts.freezes or frozen[largest].made,
            evidence={"frozen": list(frozen)[:8], "trained": trained[:8], "part_of_weights": held / sum(prod(f.shape) for f in weights.values()), "loss_by_constant": learnt[-1], "standing": "suspected"},
            confidence=0.75,
        )
    ]  # fmt: skip


def _is_frozen(case: Case, name: str, fact: ParameterFact) -> bool:
    return (
        not fact.requires_grad
        and bool(fact.optimizers)
        and fact.library
        and fact.owner_training is not False
        and not fact.changed
        and any(name.startswith(f"{fact.owner}:out") for name in case.sites)
        and not case.digests(f"{name}:grad", ("step",))
    )


def _is_random(case: Case, name: str, fact: ParameterFact) -> bool:
    """It has the spread that the framework's own initialisation gives, and has had it all the time."""
    expected = _spread(fact)
    rows = case.digests(f"{name}:value", ("std", "mean"))
    if expected is None or not rows or prod(fact.shape) < FEWEST_VALUES:
        return expected is not None and bool(rows)
    first, last = rows[0], rows[-1]
    return (
        first["std"] == last["std"] and isclose(first["std"], expected, rel_tol=NEAR) and abs(first["mean"]) < expected
    )


def _spread(fact: ParameterFact) -> float | None:
    """The standard deviation that the call gives which initialised it where it was made; None: another one was made, or it is not known."""
    if fact.recipe is None or fact.filled is None or fact.made is None or fact.filled.line != fact.made.line:
        return None
    name, _, given = fact.recipe.partition("(")
    numbers = [float(n) for n in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", given)]
    if name == "uniform_" and len(numbers) == 2:
        return (numbers[1] - numbers[0]) / sqrt(12)
    if name == "normal_" and len(numbers) in (0, 2):
        return numbers[1] if numbers else 1.0
    if name == "kaiming_uniform_" and len(numbers) == 1:
        return sqrt(2 / (1 + numbers[0] ** 2) / prod(fact.shape[1:]))
    return None
