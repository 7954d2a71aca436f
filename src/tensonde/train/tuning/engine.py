"""The loop of `tensonde tune` on this machine: ask for values, run trials beside each other, tell what came out.

One thread; the trials are processes. Everything that is known is in the study before the next trial begins, so that a
kill at any moment costs the trials that were running, and these are tried again.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensonde.train.tuning.settings import Settings
from tensonde.train.tuning.trial import Outcome, Running

POLL = 0.25

Told = Callable[[Any, Outcome], None]
"""Called with each trial that has ended, as it is in the study, and what became of it."""
Shown = Callable[[int, list[tuple[int, Running]]], None]
"""Called now and then with how many are done, and those that run, with their numbers."""


def optimise(
    study: Any,
    settings: Settings,
    folder: Path,
    *,
    trials: int,
    jobs: int,
    told: Told,
    shown: Shown = lambda done, running: None,
    timeout: float | None = None,
) -> None:
    """Until the study holds `trials` trials that were not cut off. KeyboardInterrupt leaves it as it stands."""
    space = settings.space(numbers=settings.calls_function)
    threads = max(1, (os.cpu_count() or 1) // jobs) if jobs > 1 else None
    running: dict[int, tuple[Any, Running]] = {}
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        while True:
            late = deadline is not None and time.monotonic() > deadline
            finished = done(study)
            left = 0 if late or study.exhausted else trials - finished - len(running)
            while left > 0 and len(running) < jobs:
                trial = study.ask(space)
                began = Running(settings, trial.params, folder / "trials" / f"{trial.number:04d}", threads=threads)
                running[trial.number] = (trial, began)
                left -= 1
            if not running:
                return
            shown(finished, [(number, process) for number, (_, process) in running.items()])
            time.sleep(POLL)
            for number, (trial, process) in list(running.items()):
                outcome = _watch(trial, process)
                if outcome is not None:
                    del running[number]
                    told(tell(study, trial, outcome), outcome)
    finally:
        for _, process in running.values():
            process.tell_to_end()
        for _, process in running.values():
            process.stop("pruned")


def done(study: Any) -> int:
    """Trials that came to an end of their own, good or bad."""
    states = [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
    return sum(not trial.user_attrs.get("finding", "").startswith("cut off") for trial in states)


def _watch(trial: Any, process: Running) -> Outcome | None:
    """What became of a trial; the pruner is asked at every reported step."""
    outcome = process.poll()
    for step, value in process.new_values():
        if not math.isfinite(value):
            return outcome or process.stop("nonfinite")
        trial.report(value, step)
        if outcome is None and trial.should_prune():
            return process.stop("pruned", f"worse than others at step {step}")
    return outcome


def tell(study: Any, trial: Any, outcome: Outcome) -> Any:
    """A trial that went to NaN counts as pruned, so that the sampler learns from it; one that failed says nothing
    about its values.
    """
    from optuna.trial import TrialState

    trial.set_user_attr("outcome", outcome.state)
    trial.set_user_attr("seconds", round(outcome.seconds, 3))
    if outcome.finding:
        trial.set_user_attr("finding", outcome.finding)
    if outcome.state == "complete":
        return study.tell(trial, outcome.value)
    return study.tell(trial, state=TrialState.FAIL if outcome.state == "failed" else TrialState.PRUNED)
