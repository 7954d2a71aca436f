"""Callbacks that ask whether the training still gets better: SaveBest and EarlyStopping.

The quantity is looked for in what an evaluation gave last (`metrics`), and "loss" without one is the training loss,
averaged over the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tensonde.errors import UsageError
from tensonde.train.callback import Callback
from tensonde.train.extras import main_process
from tensonde.train.monitors import loss_of
from tensonde.train.weights import save_checkpoint

if TYPE_CHECKING:
    from tensonde.train.context import Arguments, RunContext

Mode = Literal["min", "max"]

_MORE_IS_BETTER = ("acc", "precision", "recall", "f1", "auc", "iou", "bleu", "dice", "top", "reward", "score", "r2")


def direction(name: str) -> Mode:
    """Whether less or more of a quantity is better, by its name: errors and losses shrink, scores grow."""
    lowered = name.lower()
    return "max" if any(part in lowered for part in _MORE_IS_BETTER) and "loss" not in lowered else "min"


class _Improving(Callback):
    """Follows one quantity from epoch to epoch."""

    def __init__(self, monitor: str, mode: Mode | None, min_delta: float) -> None:
        if mode not in (None, "min", "max"):
            raise UsageError(f"mode is {mode!r}; it may be min or max.")
        self.monitor, self.mode, self.min_delta = monitor, mode or direction(monitor), abs(min_delta)
        self.best: float | None = None
        self._losses: list[float] = []

    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        self._losses.clear()

    def on_train_step_end(self, run_context: RunContext) -> None:
        loss = loss_of(run_context.original_args())
        if loss is not None:
            self._losses.append(loss)

    def current(self, arguments: Arguments) -> float:
        found = (arguments.get("metrics") or {}).get(self.monitor)
        if found is None and self.monitor == "loss" and self._losses:
            found = sum(self._losses) / len(self._losses)
        if found is None:
            there = ", ".join(sorted(arguments.get("metrics") or {})) or "none"
            raise UsageError(
                f"{type(self).__name__} looks for {self.monitor!r}, and the metrics so far are: {there}; evaluate before "
                "the end of the epoch (valid_dataset=), or name another."
            )
        return float(found)

    def better(self, value: float) -> bool:
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        return value < self.best - self.min_delta if self.mode == "min" else value > self.best + self.min_delta


class SaveBest(_Improving):
    """Saves the weights whenever `monitor` is better than ever, at the end of an epoch or every `steps` steps.

    `evaluate` gives the metrics: a function without arguments that returns a dictionary, such as
    `lambda: model.eval(dataset)`. Without it, the results of the last evaluation count.
    """

    def __init__(
        self,
        monitor: str = "loss",
        path: str | Path = "best.safetensors",
        *,
        evaluate: Callable[[], Mapping[str, Any]] | None = None,
        steps: int = 0,
        mode: Mode | None = None,
        min_delta: float = 0.0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.path, self.evaluate, self.steps = Path(path), evaluate, steps

    def on_train_step_end(self, run_context: RunContext) -> None:
        super().on_train_step_end(run_context)
        if self.steps and run_context.original_args().cur_step_num % self.steps == 0:
            self._compare(run_context.original_args())

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        if not self.steps:
            self._compare(run_context.original_args())

    def _compare(self, arguments: Arguments) -> None:
        if self.evaluate is not None:
            arguments.metrics = dict(self.evaluate())
        value = self.current(arguments)
        if not self.better(value):
            return
        if arguments.train_network is None:
            raise UsageError("SaveBest does not know the network; give it, e.g. tensonde.loop(..., network=model).")
        self.best = value
        if main_process():
            facts = {"epoch": arguments.cur_epoch_num, "step": arguments.cur_step_num, self.monitor: value}
            save_checkpoint(arguments.train_network, self.path, append=facts)


class EarlyStopping(_Improving):
    """Ends the training after `patience` epochs in which `monitor` did not get better by more than `min_delta`."""

    def __init__(
        self, monitor: str = "loss", *, patience: int = 3, min_delta: float = 0.0, mode: Mode | None = None
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        if patience < 1:
            raise UsageError(f"patience is {patience} epochs; it must be at least 1.")
        self.patience = patience
        self.waited = 0

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        value = self.current(run_context.original_args())
        if self.better(value):
            self.best, self.waited = value, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            if main_process():
                print(f"{self.monitor} has not improved on {self.best} for {self.waited} epochs; the training ends")
            run_context.request_stop()
