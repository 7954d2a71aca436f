"""Does a step lower the loss of its own batch, and would another learning rate lower it more?

The optimizer's step is made on a clone, and the loss of the same batch is computed again with the same random numbers. Healthy: it
falls, by about what the gradient predicts. A rise is a step too far. Then the clone makes some more steps on this batch, at the learning
rate of the training and at another: a hundredth where these steps end above where they began, a hundredfold where they do not. A training
whose batch is learnt many times better at a hundredfold rate has one that is too small. Where there is time for one step only, one is made.

Where the optimizer is about to step with other gradients than those of the batch, or weights decay much, the clone also makes the steps without that.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import NO_TIME, Answer, Experiment, Memory
from tensonde.experiments.step import NotPossible, Step, Trial

STEPS, FEWEST = 5, 2
SHARE = 0.6
"""Of the time that is left, for two trials."""
SAME, FAR, DECAY = 0.9, 8.0, 0.05
"""Cosine and ratio of sizes beyond which gradients are not those of the batch; a weight decay that is worth a trial."""
BACKWARD = 3.0
"""Computations of the step that one with its gradients takes as long as."""


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    each = BACKWARD * max(step.seconds_each, 1e-6)
    steps = min(STEPS, int(SHARE * step.seconds_left() / (2 * each)) - 1)
    if steps < FEWEST:
        if SHARE * step.seconds_left() < 2 * each:
            raise NotPossible(NO_TIME)
        trial = step.trial(1)
        before, after = trial.losses[0], trial.losses[-1]
        yield Answer(
            after <= before,
            f"from {before:.4g} to {after:.4g}",
            {"before": before, "after": after},
            source=step.optimizer_source,
        )
        return
    trial = step.trial(steps)
    before, after = trial.losses[:2]
    numbers = {"before": before, "after": after, "predicted": trial.predicted, "moved": trial.moved, "steps": steps}
    if step.rates:
        numbers["lr"] = max(step.rates)
    numbers["at 1"] = _last(trial, steps)
    rate = 100.0 if after <= before and numbers["at 1"] <= before else 0.01
    if rate < 1 or not Anatomy.of(step).random_targets:  # a batch of those can only be learnt by heart
        with suppress(NotPossible):  # it took longer than it seemed
            numbers[f"at {rate:g}"] = _last(step.trial(steps, rate=rate), steps)
    numbers["cosine"], numbers["scale"] = trial.cosine, trial.scale
    with suppress(NotPossible):
        if trial.cosine < SAME or not 1 / FAR < trial.scale < FAR:  # left of earlier steps, or clipped to nothing
            numbers["with its own gradients"] = step.trial(1, own=True).losses[
                -1
            ]  # one step: later ones have their own in any case
        if step.decay >= DECAY:
            numbers["without decay"] = _last(step.trial(steps, decay=False), steps)
    yield Answer(
        after <= before or numbers["at 1"] <= before,
        f"from {before:.4g} to {after:.4g}",
        {name: number for name, number in numbers.items() if number == number and abs(number) < 1e300},
        source=step.optimizer_source,
    )


def _last(trial: Trial, steps: int) -> float:
    """NaN where it did not get to the end."""
    return trial.losses[-1] if len(trial.losses) == steps + 1 else float("nan")


OWN_BATCH = Experiment("own-batch", "Does a step lower the loss of its own batch?", ask, times=3)
