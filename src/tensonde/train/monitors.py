"""Callbacks that look at numbers: the loss, the learning rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensonde.errors import TensondeError, UsageError
from tensonde.train.callback import Callback
from tensonde.train.extras import main_process

if TYPE_CHECKING:
    from tensonde.train.context import Arguments, RunContext


def loss_of(arguments: Arguments) -> float | None:
    """The loss of the step as a number; None where it is not known, or is no single number."""
    given = arguments.net_outputs
    if isinstance(given, tuple | list) and given:
        given = given[0]
    try:
        return None if given is None else float(given)
    except (TypeError, ValueError, RuntimeError):
        return None


class BadLoss(TensondeError):
    """The loss is NaN or Inf."""


class LossMonitor(Callback):
    """Prints the loss every `per_print_times` steps (0: never), and ends the training when it is NaN or Inf.

    `on_bad`: "stop" ends it cleanly, "raise" raises `BadLoss`.
    """

    def __init__(self, per_print_times: int = 1, *, on_bad: str = "stop") -> None:
        if per_print_times < 0:
            raise UsageError(f"per_print_times is {per_print_times}; it must not be negative.")
        if on_bad not in ("stop", "raise"):
            raise UsageError(f"on_bad is {on_bad!r}; it may be stop or raise.")
        self.per_print_times, self.on_bad = per_print_times, on_bad
        self.losses: list[float] = []

    def on_train_step_end(self, run_context: RunContext) -> None:
        arguments = run_context.original_args()
        loss = loss_of(arguments)
        if loss is None:
            return
        self.losses.append(loss)
        epoch, step, batches = arguments.cur_epoch_num, arguments.cur_step_num, arguments.batch_num
        within = (step - 1) % batches + 1 if batches else step
        if not math.isfinite(loss):
            text = f"epoch: {epoch} step: {within}, the loss is {loss}; the training ends"
            if self.on_bad == "raise":
                raise BadLoss(text)
            if main_process():
                print(text, flush=True)
            run_context.request_stop()
        elif self.per_print_times and step % self.per_print_times == 0 and main_process():
            print(f"epoch: {epoch} step: {within}, loss is {loss}", flush=True)

    def on_eval_step_end(self, run_context: RunContext) -> None:
        """The losses of an evaluation are its metrics' business."""


class LearningRateMonitor(Callback):
    """Keeps the learning rate of every parameter group at every step in `rates`, and prints it where it changes.

    `per_print_times` 0 (the default) prints nothing, n prints at most every n steps.
    """

    def __init__(self, per_print_times: int = 0) -> None:
        self.per_print_times = per_print_times
        self.rates: list[list[float]] = []

    def on_train_step_begin(self, run_context: RunContext) -> None:
        optimizer = run_context.original_args().optimizer
        if optimizer is None:
            return
        now = [float(group["lr"]) for group in optimizer.param_groups]
        changed = not self.rates or self.rates[-1] != now
        self.rates.append(now)
        if self.per_print_times and changed and (len(self.rates) - 1) % self.per_print_times == 0 and main_process():
            print(f"step: {len(self.rates)}, learning rate {', '.join(f'{rate:g}' for rate in now)}", flush=True)

    def on_eval_step_begin(self, run_context: RunContext) -> None:
        """Nothing is learnt in an evaluation."""
