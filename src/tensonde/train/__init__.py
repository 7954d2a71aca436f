"""The companions that a training script imports: callbacks, metrics, Model, schedules, hooks, tuning.

Everything is loaded when it is first asked for: importing this package imports neither torch nor what stands on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_PLACES = {
    "Callback": "callback",
    "CheckpointConfig": "checkpoint",
    "EarlyStopping": "improvement",
    "LearningRateMonitor": "monitors",
    "LearningRateScheduler": "schedules",
    "LossMonitor": "monitors",
    "Metric": "metrics.metric",
    "Model": "model",
    "ModelCheckpoint": "checkpoint",
    "RunContext": "context",
    "SaveBest": "improvement",
    "StopAtTime": "times",
    "SummaryCollector": "summary",
    "TimeMonitor": "times",
    "WarmUpLR": "schedules",
    "WatchMonitor": "watching",
    "check_schedule": "curve",
    "follow": "schedules",
    "load_checkpoint": "weights",
    "loop": "loop",
    "save_checkpoint": "weights",
    "schedule_curve": "curve",
    "tune": "tuning.function",
    "warm_up": "schedules",
}

__all__ = sorted(_PLACES)

if TYPE_CHECKING:
    from tensonde.train.callback import Callback as Callback
    from tensonde.train.checkpoint import CheckpointConfig as CheckpointConfig
    from tensonde.train.checkpoint import ModelCheckpoint as ModelCheckpoint
    from tensonde.train.context import RunContext as RunContext
    from tensonde.train.loop import loop as loop
    from tensonde.train.model import Model as Model


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'tensonde.train' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"tensonde.train.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *__all__]
