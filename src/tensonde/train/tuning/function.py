"""`tensonde.train.tune`: a Python function, tried in this process, one trial after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tensonde.errors import UsageError
from tensonde.model import reported
from tensonde.train.improvement import direction as natural
from tensonde.train.tuning.engine import done, tell
from tensonde.train.tuning.metric import Metric
from tensonde.train.tuning.settings import Settings
from tensonde.train.tuning.space import Parameter
from tensonde.train.tuning.study import open_study
from tensonde.train.tuning.trial import Outcome


class Stopped(Exception):
    """Comes out of `tensonde.report` when the trial need not go on; let it pass."""

    def __init__(self, state: Any, why: str) -> None:
        super().__init__(why)
        self.state = state


def tune(
    function: Callable[..., Any],
    parameters: Mapping[str, str],
    *,
    metric: str = "loss",
    trials: int = 20,
    study: str | Path = ".tensonde/studies/function",
    direction: str | None = None,
    sampler: str = "tpe",
    pruner: str = "median",
    seed: int | None = None,
) -> Any:
    """Calls `function(**values)` until the study holds `trials` trials; it returns the metric, or reports it with
    `tensonde.report(metric, value)`, which also lets the pruner end it. Returns Optuna's study (`.best_params`).

    `parameters` are spaces by name, as on the command line: `{"lr": "log:1e-5:1e-1"}`. The study's folder keeps it:
    called again with the same, it goes on.
    """
    if not parameters:
        raise UsageError("tune was given no parameters; give e.g. {'lr': 'log:1e-5:1e-1'}.")
    space = tuple(Parameter.parse(f"{name}={form}") for name, form in parameters.items())
    wanted = direction or {"min": "minimize", "max": "maximize"}[natural(metric)]
    settings = Settings(
        (f"function {getattr(function, '__name__', 'tuned')}",), space, Metric(metric, direction=wanted)
    )
    opened = open_study(Path(study), settings, sampler=sampler, pruner=pruner, seed=seed)
    while done(opened) < trials:
        trial = opened.ask(settings.space(numbers=True))
        tell(opened, trial, _run(function, trial, settings.metric))
    return opened


def _run(function: Callable[..., Any], trial: Any, metric: Metric) -> Outcome:
    values: list[float] = []

    def listen(told: reported.Reported) -> None:
        if told.name != metric.name:
            return
        values.append(told.value)
        step = len(values) - 1
        if not math.isfinite(told.value):
            raise Stopped("nonfinite", f"{told.name} is {told.value} at step {step}")
        trial.report(metric.reduced(values), step)
        if trial.should_prune():
            raise Stopped("pruned", f"worse than others at step {step}")

    reported.listeners.append(listen)
    try:
        result = function(**trial.params)
    except Stopped as stopped:
        return Outcome(stopped.state, None, str(stopped))
    finally:
        reported.listeners.remove(listen)
    value = float(result) if result is not None else metric.reduced(values)
    if value is None:
        raise UsageError(f"the function returned nothing and reported no {metric.name!r}; return the value.")
    if not math.isfinite(value):
        return Outcome("nonfinite", None, f"{metric.name} is {value}")
    return Outcome("complete", value)
