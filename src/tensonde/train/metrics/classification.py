"""Metrics of classes: predictions are scores, one a class (N, C, ...), or classes; labels are classes or one-hot.

`eval_type="multilabel"`: both hold 0 and 1 for every class, and a sample counts as right where all its classes are.
"""

from __future__ import annotations

from typing import Any

from tensonde.errors import UsageError
from tensonde.train.metrics.metric import Metric, Wrapped, result, tensor, torchmetrics


class _OfClasses(Metric):
    """Made when the first batch says how many classes there are."""

    def __init__(self, eval_type: str = "classification") -> None:
        if eval_type not in ("classification", "multilabel"):
            raise UsageError(f"eval_type is {eval_type!r}; it may be classification or multilabel.")
        self.eval_type = eval_type
        self.metric: Wrapped | None = None
        self.classes = 0

    def build(self, module: Any, classes: int) -> Any:
        raise NotImplementedError

    def clear(self) -> None:
        self.metric = None
        self.classes = 0

    def update(self, *inputs: Any) -> None:
        if len(inputs) != 2:
            raise UsageError(
                f"{type(self).__name__}.update takes predictions and labels, and got {len(inputs)} things."
            )
        scores, labels = tensor(inputs[0]), tensor(inputs[1])
        if self.eval_type == "multilabel":
            if scores.shape != labels.shape or scores.ndim < 2:
                raise UsageError(
                    f"{type(self).__name__} of several labels got predictions {tuple(scores.shape)} and labels "
                    f"{tuple(labels.shape)}; both must be (samples, classes)."
                )
            count = scores.shape[1]
        else:
            if labels.shape == scores.shape and scores.ndim > 1:
                labels = labels.argmax(dim=1)  # one-hot
            count = scores.shape[1] if scores.ndim == labels.ndim + 1 else 0
            said = (scores.shape[0], *scores.shape[2:]) if count else scores.shape
            if tuple(said) != tuple(labels.shape):
                raise UsageError(
                    f"{type(self).__name__} got predictions {tuple(scores.shape)} and labels {tuple(labels.shape)}; "
                    "predictions must be (samples, classes) or classes, and labels classes or one-hot."
                )
            count = count or int(max(scores.max(), labels.max())) + 1
        labels = labels.long()
        if self.metric is None:
            self.classes = count
            self.metric = Wrapped(self.build(torchmetrics().classification, count))
        elif count > self.classes:
            raise UsageError(
                f"{type(self).__name__} saw {self.classes} classes at first and now {count}; give scores for all classes."
            )
        self.metric.update(scores, labels)

    def eval(self) -> Any:
        if self.metric is None:
            raise UsageError(f"{type(self).__name__} has seen no batch; call update before eval.")
        return self.metric.eval()

    @property
    def multilabel(self) -> bool:
        return self.eval_type == "multilabel"


class Accuracy(_OfClasses):
    """The share of samples whose class is right."""

    def build(self, module: Any, classes: int) -> Any:
        if self.multilabel:
            return module.MultilabelExactMatch(classes)
        return module.MulticlassAccuracy(max(classes, 2), average="micro")


class _PerClass(_OfClasses):
    """One number a class, or with `eval(average=True)` their mean."""

    what = ""

    def build(self, module: Any, classes: int) -> Any:
        if self.multilabel:
            return getattr(module, f"Multilabel{self.what}")(classes, average="none")
        return getattr(module, f"Multiclass{self.what}")(max(classes, 2), average="none")

    def eval(self, average: bool = False) -> Any:
        each = super().eval()
        return float(each.mean()) if average else each


class Precision(_PerClass):
    """Of what was said to be of a class, the share that is."""

    what = "Precision"


class Recall(_PerClass):
    """Of what is of a class, the share that was found."""

    what = "Recall"


class Fbeta(_PerClass):
    """Precision and recall in one number; recall counts `beta` times as much."""

    def __init__(self, beta: float = 1.0, eval_type: str = "classification") -> None:
        super().__init__(eval_type)
        if beta <= 0:
            raise UsageError(f"beta is {beta}; it must be more than 0.")
        self.beta = float(beta)

    def build(self, module: Any, classes: int) -> Any:
        if self.multilabel:
            return module.MultilabelFBetaScore(self.beta, classes, average="none")
        return module.MulticlassFBetaScore(self.beta, max(classes, 2), average="none")


class F1(Fbeta):
    """The harmonic mean of precision and recall."""

    def __init__(self, eval_type: str = "classification") -> None:
        super().__init__(1.0, eval_type)


class ConfusionMatrix(_OfClasses):
    """How often class i (row) was taken for class j (column). `normalize`: None, "true", "pred" or "all"."""

    def __init__(self, num_classes: int | None = None, normalize: str | None = None) -> None:
        super().__init__()
        self.num_classes, self.normalize = num_classes, normalize

    def build(self, module: Any, classes: int) -> Any:
        self.classes = max(classes, self.num_classes or 2)
        return module.MulticlassConfusionMatrix(self.classes, normalize=self.normalize)

    def eval(self) -> Any:
        if self.metric is None:
            raise UsageError("ConfusionMatrix has seen no batch; call update before eval.")
        return result(self.metric.computed())


class TopKCategoricalAccuracy(_OfClasses):
    """The share of samples whose class is among the k with the highest scores."""

    def __init__(self, k: int) -> None:
        super().__init__()
        if k < 1:
            raise UsageError(f"k is {k}; it must be at least 1.")
        self.k = k

    def build(self, module: Any, classes: int) -> Any:
        if classes < self.k:
            raise UsageError(
                f"the top {self.k} of {classes} classes were asked for; k must not be more than the classes."
            )
        return module.MulticlassAccuracy(classes, average="micro", top_k=self.k)


class Top1CategoricalAccuracy(TopKCategoricalAccuracy):
    def __init__(self) -> None:
        super().__init__(1)


class Top5CategoricalAccuracy(TopKCategoricalAccuracy):
    def __init__(self) -> None:
        super().__init__(5)
