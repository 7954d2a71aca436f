"""Metrics by name: `clear`, `update`, `eval`. The arithmetic is torchmetrics'; names and behaviour are MindSpore's."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tensonde.errors import UsageError
from tensonde.train.metrics.classification import (
    F1,
    Accuracy,
    ConfusionMatrix,
    Fbeta,
    Precision,
    Recall,
    Top1CategoricalAccuracy,
    Top5CategoricalAccuracy,
    TopKCategoricalAccuracy,
)
from tensonde.train.metrics.errors import MAE, MSE, RMSE, CosineSimilarity, Tolerance
from tensonde.train.metrics.losses import Loss, Perplexity
from tensonde.train.metrics.metric import Metric, Wrapped

NAMES: dict[str, Callable[..., Metric]] = {
    "accuracy": Accuracy,
    "acc": Accuracy,
    "precision": Precision,
    "recall": Recall,
    "F1": F1,
    "f1": F1,
    "f1_score": F1,
    "loss": Loss,
    "mae": MAE,
    "mse": MSE,
    "rmse": RMSE,
    "tolerance": Tolerance,
    "topk": TopKCategoricalAccuracy,
    "top_1_accuracy": Top1CategoricalAccuracy,
    "top_5_accuracy": Top5CategoricalAccuracy,
    "confusion_matrix": ConfusionMatrix,
    "cosine_similarity": CosineSimilarity,
    "perplexity": Perplexity,
}

__all__ = [
    "F1", "MAE", "MSE", "NAMES", "RMSE", "Accuracy", "ConfusionMatrix", "CosineSimilarity", "Fbeta", "Loss",
    "Metric", "Perplexity", "Precision", "Recall", "Tolerance", "Top1CategoricalAccuracy", "Top5CategoricalAccuracy",
    "TopKCategoricalAccuracy", "get_metric_fn", "named", "names",
]  # fmt: skip


def names() -> list[str]:
    """Every name that `Model` and `get_metric_fn` take."""
    return sorted(NAMES)


def get_metric_fn(name: str, *args: Any, **kwargs: Any) -> Metric:
    """A new metric by its name; the arguments go to its class."""
    if name not in NAMES:
        close = difflib.get_close_matches(str(name), NAMES, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names())}."
        raise UsageError(f"there is no metric {name!r}; {hint}")
    return NAMES[name](*args, **kwargs)


def named(metrics: Mapping[str, Any] | Iterable[str]) -> dict[str, Metric]:
    """What a user gives, as metrics by name: a dictionary of metrics (ours or torchmetrics'), or names alone."""
    if isinstance(metrics, str):
        metrics = {metrics}
    if not isinstance(metrics, Mapping):
        return {name: get_metric_fn(name) for name in sorted(metrics)}
    return {name: _metric(name, given) for name, given in metrics.items()}


def _metric(name: str, given: Any) -> Metric:
    if isinstance(given, Metric) or all(callable(getattr(given, part, None)) for part in ("clear", "update", "eval")):
        return given  # type: ignore[no-any-return]
    if isinstance(given, str):
        return get_metric_fn(given)
    if all(callable(getattr(given, part, None)) for part in ("reset", "update", "compute")):
        return Wrapped(given)
    raise UsageError(
        f"the metric {name!r} is {given!r}, which has no clear, update and eval; derive it from tensonde.train.Metric."
    )
