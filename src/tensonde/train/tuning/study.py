"""The study on disk: Optuna's own, in SQLite, so that its dashboard opens it and a killed one goes on."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from tensonde.errors import UsageError
from tensonde.train.extras import need
from tensonde.train.tuning.settings import Settings

NAME = "tensonde"
DATABASE = "study.db"


def open_study(folder: Path, settings: Settings, *, sampler: str, pruner: str, seed: int | None) -> Any:
    """The study in the folder, new or gone on with. Trials that a kill cut off are put in the queue again."""
    optuna = need("optuna", extra="tune", what="tensonde tune")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    settings.keep(folder)
    storage = database(folder)
    study = optuna.create_study(
        storage=storage, study_name=NAME, direction=settings.metric.direction, load_if_exists=True
    )
    trials = study.get_trials(deepcopy=False)
    # The same seed again would draw the same numbers again.
    study.sampler = make_sampler(optuna, sampler, None if seed is None else seed + len(trials))
    study.pruner = make_pruner(optuna, pruner)
    study.exhausted = False
    study.stop = lambda: setattr(study, "exhausted", True)  # a sampler that has tried all asks for it; we run the loop
    running = optuna.trial.TrialState.RUNNING
    for trial in trials:
        if trial.state == running:
            study._storage.set_trial_user_attr(trial._trial_id, "finding", "cut off: the study was stopped")
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            study.enqueue_trial(trial.params)
    return study


def database(folder: Path) -> str:
    return f"sqlite:///{(folder / DATABASE).absolute()}"


def make_sampler(optuna: Any, name: str, seed: int | None) -> Any:
    made = {
        "tpe": optuna.samplers.TPESampler,
        "random": optuna.samplers.RandomSampler,
        "gp": optuna.samplers.GPSampler,
        "cmaes": optuna.samplers.CmaEsSampler,
        "brute": optuna.samplers.BruteForceSampler,
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Optuna calls experimental has been so for years
            return made[name](seed=seed)
    except ImportError as problem:
        raise UsageError(f"the sampler {name} needs a package that is not installed: {problem}.") from None


def make_pruner(optuna: Any, name: str) -> Any:
    """The steps before the tenth say little about any training."""
    if name == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=10)
    if name == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=10)
    if name == "halving":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=10)
    return optuna.pruners.NopPruner()
