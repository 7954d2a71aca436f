"""`tensonde tune --engine ray`: the same trials, spread by Ray Tune over the machines of its cluster.

Ray decides which trial runs where (and, with a pruner, which ends early: ASHA); the values are drawn by Optuna. Each trial
is the same process under Tensonde as on one machine, started by a Ray worker. The results go into the same study, so that
tables, plots and the dashboard are the same. The folder must be one that all machines see.
"""

from __future__ import annotations

import logging
import math
import os
import time
from pathlib import Path
from typing import Any

from tensonde.errors import UsageError
from tensonde.train.extras import need
from tensonde.train.tuning.engine import POLL, Told, done
from tensonde.train.tuning.settings import Settings
from tensonde.train.tuning.trial import Outcome, Running


def optimise_on_ray(
    study: Any, settings: Settings, folder: Path, *, trials: int, jobs: int, told: Told, prune: bool, seed: int | None
) -> None:
    """Until the study holds `trials` trials. What an interrupted one had finished counts; the rest is tried anew."""
    ray = need("ray", extra="ray", what="tensonde tune --engine ray")
    tune = need("ray.tune", extra="ray", what="tensonde tune --engine ray")
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    left = trials - done(study)
    if left <= 0:
        return
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    begun = not ray.is_initialized()
    if begun:
        address = os.environ.get("RAY_ADDRESS")
        options: dict[str, Any] = {"address": address} if address else {"num_cpus": jobs, "include_dashboard": False}
        ray.init(log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **options)
    mode = "min" if settings.metric.direction == "minimize" else "max"
    space = settings.space(numbers=settings.calls_function)
    first = 1 + max((trial.number for trial in study.get_trials(deepcopy=False)), default=-1)
    place, here = folder.absolute(), os.getcwd()
    teller = _teller(tune, study, space, told)
    search = OptunaSearch(
        space=space, metric="metric", mode=mode, sampler=study.sampler, seed=None,
        points_to_evaluate=None,
    )  # fmt: skip

    def trainable(config: dict[str, Any]) -> None:
        name = tune.get_context().get_trial_id()
        running = Running(settings, config, place / "trials" / f"ray-{name}", cwd=here)
        try:
            _follow(tune, running)
        finally:
            if running.process.poll() is None:
                running.stop("pruned")

    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        tune_config=tune.TuneConfig(
            num_samples=left, max_concurrent_trials=jobs, search_alg=search,
            scheduler=ASHAScheduler(time_attr="step", metric="metric", mode=mode, grace_period=10, max_t=10**9)
            if prune else None,
            reuse_actors=False,
        ),
        run_config=tune.RunConfig(
            name=f"ray-{first}", storage_path=str(place), verbose=0, callbacks=[teller],
            stop=lambda trial, result: teller.problem is not None
        ),
    )  # fmt: skip
    try:
        tuner.fit()
    finally:
        if begun:
            ray.shutdown()
    if teller.problem is not None:
        raise teller.problem


def _follow(tune: Any, running: Running) -> None:
    """Reports values to Ray while the trial runs; the last report says what became of it."""
    step, latest = 0, math.nan
    while True:
        outcome = running.poll()
        for step, value in running.new_values():
            if not math.isfinite(value):
                outcome = outcome or running.stop("nonfinite")
                break
            latest = value
            if outcome is None:
                tune.report({"metric": value, "step": step, "outcome": ""})
        if outcome is not None:
            break
        time.sleep(POLL)
    worst = math.inf if running.metric.direction == "minimize" else -math.inf
    value = outcome.value if outcome.value is not None else latest if math.isfinite(latest) else worst
    tune.report(
        {"metric": value, "step": step + 1, "outcome": outcome.state, "finding": outcome.finding,
         "seconds": outcome.seconds}
    )  # fmt: skip


def _teller(tune: Any, study: Any, space: dict[str, Any], told: Told) -> Any:
    """Puts each trial that has ended into the study."""
    from optuna.trial import TrialState, create_trial

    class Teller(tune.Callback):  # type: ignore[misc]
        problem: UsageError | None = None
        """Raised when Ray has come to an end: out of a callback, it would be Ray's to explain."""

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            self._add(trial, trial.last_result or {})

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            self._add(trial, {**(trial.last_result or {}), "outcome": "failed"})

        def _add(self, trial: Any, last: dict[str, Any]) -> None:
            state: Any = last.get("outcome") or "pruned"
            finding = last.get("finding") or ("worse than others" if state == "pruned" else "")
            outcome = Outcome(state, last.get("metric") if state == "complete" else None, finding,
                              float(last.get("seconds") or last.get("time_total_s") or 0.0))  # fmt: skip
            kind = {"complete": TrialState.COMPLETE, "failed": TrialState.FAIL}.get(state, TrialState.PRUNED)
            attributes = {"outcome": state, "finding": finding, "seconds": round(outcome.seconds, 3),
                          "folder": f"ray-{trial.trial_id}"}  # fmt: skip
            params = {name: trial.config[name] for name in space}
            study.add_trial(
                create_trial(state=kind, value=outcome.value, params=params, distributions=space, user_attrs=attributes)
            )
            try:
                told(study.get_trials(deepcopy=False)[-1], outcome)
            except UsageError as problem:
                self.problem = self.problem or problem

    return Teller()
