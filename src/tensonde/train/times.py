"""Callbacks that look at the clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tensonde.errors import UsageError
from tensonde.train.callback import Callback
from tensonde.train.extras import main_process
from tensonde.train.monitors import loss_of

if TYPE_CHECKING:
    from tensonde.train.context import RunContext


class TimeMonitor(Callback):
    """Prints the time of each epoch, and of a step in it."""

    def __init__(self) -> None:
        self.epochs: list[float] = []
        """Seconds of each epoch."""
        self._began = 0.0
        self._steps = 0

    def epoch_begin(self, run_context: RunContext) -> None:
        self._began, self._steps = time.perf_counter(), 0

    def step_end(self, run_context: RunContext) -> None:
        self._steps += 1

    def epoch_end(self, run_context: RunContext) -> None:
        seconds = time.perf_counter() - self._began
        arguments = run_context.original_args()
        if arguments.mode == "train":
            self.epochs.append(seconds)
        if main_process():
            what = "epoch" if arguments.mode == "train" else "evaluation"
            each = seconds / max(1, self._steps) * 1e3
            print(f"{what} time: {seconds * 1e3:.3f} ms, per step time: {each:.3f} ms", flush=True)


class StopAtTime(Callback):
    """Ends the training after `run_time` minutes, at the end of a step."""

    def __init__(self, run_time: float) -> None:
        if run_time <= 0:
            raise UsageError(f"run_time is {run_time} minutes; it must be more than 0.")
        self.run_time = run_time * 60

    def on_train_begin(self, run_context: RunContext) -> None:
        run_context.original_args().init_time = time.time()

    def on_train_step_end(self, run_context: RunContext) -> None:
        arguments = run_context.original_args()
        if time.time() - arguments.init_time > self.run_time:
            if main_process():
                print(
                    f"epoch: {arguments.cur_epoch_num} step: {arguments.cur_step_num} loss: {loss_of(arguments)}",
                    flush=True,
                )
            run_context.request_stop()

    def on_eval_begin(self, run_context: RunContext) -> None:
        """An evaluation takes the time that it takes."""
