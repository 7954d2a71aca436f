"""Copies of a trained model: averages that do not follow, and trained weights that are loaded over."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding
from tensonde.program.habits import gives_away

MOVED = 0.02
"""How far the trained weights must have gone, as a part of their size."""
EARLIEST = 20
"""Steps after which a copy that is evaluated once tells something."""
FOLLOWED = 0.05
"""The part of the way to the trained weights below which a copy has not followed them."""


@rule("average-does-not-follow", severity="error")
def does_not_follow(case: Case) -> list[Finding]:
    """A copy of the trained model is evaluated again and again. The trained weights change, but the copy does not,
    not by a bit: the evaluation uses the model as it was when it was copied. The program has a line that averages
    parameters, so the copy was meant to follow; without such a line it may be a reference. A copy that takes part in
    every step (a teacher) is not reported. One evaluation is enough if the copy equals the training's initial weights
    bit for bit, and the trained weights have changed.

    Or the copy changes but has hardly come nearer to the trained weights: a moving average whose decay is made for a
    far longer training.
    """
    return _never_changes(case) or _hardly_follows(case)


def _never_changes(case: Case) -> list[Finding]:
    for copy in case.facts.copies:
        often = copy.looks > 0.5 * max(copy.last - copy.first, 1) and copy.looks > 1
        again = copy.looks >= 3 and not copy.moved and copy.trained_moved > MOVED
        old = copy.as_at_start and not copy.moved and copy.trained_before > MOVED and copy.first >= EARLIEST
        if (again or old) and not often and copy.update_line:
            lost = gives_away(copy.update_line.code)
            return [
                case.finding(
                    f"The {copy.type} that is evaluated is a copy that never changes, while the trained weights do"
                    + (": its average is computed but not stored" if lost else ""),
                    "Write the average into the copy: mul_, add_ and lerp_ do, mul, add and lerp give a new tensor."
                    if lost
                    else "Update the copy after each optimizer step (a moving average), or evaluate the trained model.",
                    step=copy.last,
                    site=copy.type,
                    source=copy.update_line if lost else copy.line,
                    evidence={"evaluations": copy.looks, "trained_moved": copy.trained_moved, "copy_moved": copy.moved},
                    confidence=0.85,
                )
            ]
    return []


def _hardly_follows(case: Case) -> list[Finding]:
    for copy in case.facts.copies:
        if copy.looks < 3 or not copy.moved or copy.trained_moved < MOVED or not copy.way:
            continue
        followed = 1 - copy.gap / copy.way
        if -FOLLOWED < followed < FOLLOWED:
            return [
                case.finding(
                    f"The averaged {copy.type} that is evaluated has covered {max(followed, 0):.1%} of the distance to the trained weights in {copy.last} steps",
                    "Lower the decay: 1 / (1 - decay) should be a small part of the number of steps.",
                    severity="warning",
                    step=copy.last,
                    site=copy.type,
                    source=copy.update_line or copy.line,
                    evidence={"followed": followed, "trained_moved": copy.trained_moved, "gap": copy.gap},
                    confidence=0.85,
                )
            ]
    return []


@rule("trained-weights-loaded-over", severity="error", phase="optimizer")
def loaded_over(case: Case) -> list[Finding]:
    """The same state is loaded again and again into a module that an optimizer trains: each time, everything learned
    since the last time is lost, for example because a target network is copied the wrong way round.
    """
    for load in case.facts.loaded_over:
        if load.times >= 3 and load.same >= load.times - 1 and len(set(load.steps)) >= 3:
            return [
                case.finding(
                    f"The trained {load.type} is set back to the same weights {load.times} times: everything learned since is lost",
                    "Load in the other direction: the copy from the trained module.",
                    step=load.steps[0],
                    site=load.type,
                    source=load.line,
                    evidence={"times": load.times, "after_steps": list(load.steps)},
                    confidence=0.93,
                )
            ]
    return []


@rule("initial-weights-evaluated", severity="error", phase="forward", unless=("trained-weights-loaded-over",))
def initial_weights(case: Case) -> list[Finding]:
    """A model has been trained, then the very weights that it had before its first step are loaded, and it is
    evaluated: everything it learned is lost. The state that should have been kept (the best one, for example) was
    never taken, or was taken before the training.

    A model that is trained again afterwards starts over, as between folds or after a learning-rate search; that is
    not reported.
    """
    for load in case.facts.loaded_over:
        if load.set_back and load.steps and load.steps[-1] >= EARLIEST:
            return [
                case.finding(
                    f"The {load.type} is loaded with the weights from before its training, and evaluated: what it learned in "
                    f"{load.steps[-1]} steps is lost",
                    "Save the state when the model is best, as a copy: copy.deepcopy(model.state_dict()).",
                    step=load.steps[-1],
                    site=load.type,
                    source=load.line,
                    evidence={"steps": load.steps[-1], "times": load.times},
                    confidence=0.95,
                )
            ]
    return []
