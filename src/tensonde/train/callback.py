"""The base class of callbacks, and calling several of them in their order.

The names are MindSpore's: `begin`, `epoch_begin`, `step_begin`, `step_end`, `epoch_end`, `end`. Its newer names say
training or evaluation (`on_train_step_end`, `on_eval_end`) and call the plain ones unless they are overridden.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from tensonde.errors import UsageError

if TYPE_CHECKING:
    from tensonde.train.context import RunContext


class Callback:
    """Override what you need. A callback may also be a context: it is entered before `begin` and left whatever happens."""

    def begin(self, run_context: RunContext) -> None:
        """Once, before anything else."""

    def epoch_begin(self, run_context: RunContext) -> None:
        """Before each epoch."""

    def step_begin(self, run_context: RunContext) -> None:
        """Before each step."""

    def step_end(self, run_context: RunContext) -> None:
        """After each step; `net_outputs` holds its loss."""

    def epoch_end(self, run_context: RunContext) -> None:
        """After each epoch."""

    def end(self, run_context: RunContext) -> None:
        """Once, at the end, also after `request_stop`; not after an exception."""

    def on_train_begin(self, run_context: RunContext) -> None:
        self.begin(run_context)

    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        self.epoch_begin(run_context)

    def on_train_step_begin(self, run_context: RunContext) -> None:
        self.step_begin(run_context)

    def on_train_step_end(self, run_context: RunContext) -> None:
        self.step_end(run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        self.epoch_end(run_context)

    def on_train_end(self, run_context: RunContext) -> None:
        self.end(run_context)

    def on_eval_begin(self, run_context: RunContext) -> None:
        self.begin(run_context)

    def on_eval_epoch_begin(self, run_context: RunContext) -> None:
        self.epoch_begin(run_context)

    def on_eval_step_begin(self, run_context: RunContext) -> None:
        self.step_begin(run_context)

    def on_eval_step_end(self, run_context: RunContext) -> None:
        self.step_end(run_context)

    def on_eval_epoch_end(self, run_context: RunContext) -> None:
        self.epoch_end(run_context)

    def on_eval_end(self, run_context: RunContext) -> None:
        self.end(run_context)

    def __enter__(self) -> Callback:
        return self

    def __exit__(self, *failure: Any) -> None:
        return None


class Callbacks:
    """Several callbacks as one, called in the order given. An exception of theirs comes out as it is, with a note that
    names the callback.
    """

    def __init__(self, given: Callback | Iterable[Callback] | None) -> None:
        self.each: list[Callback] = [given] if isinstance(given, Callback) else list(given or [])
        for callback in self.each:
            if not isinstance(callback, Callback):
                hint = ", made: an instance is needed" if isinstance(callback, type) else ""
                raise UsageError(
                    f"callbacks holds {callback!r}, which is no tensonde.train.Callback{hint}; derive it from that class."
                )

    def enter(self) -> ExitStack:
        """The callbacks as contexts, to be used with `with`."""
        stack = ExitStack()
        for callback in self.each:
            stack.enter_context(callback)
        return stack

    def call(self, event: str, run_context: RunContext) -> None:
        """`event` is a method's name without `on_train_` or `on_eval_`, which the mode decides."""
        mode = run_context.original_args().get("mode", "train")
        method = f"on_{mode}_{event}"
        for number, callback in enumerate(self.each, 1):
            try:
                getattr(callback, method)(run_context)
            except Exception as problem:
                arguments = run_context.original_args()
                problem.add_note(
                    f"raised by the callback {type(callback).__name__} ({number} of {len(self.each)}) in {event}, "
                    f"epoch {arguments.get('cur_epoch_num')}, step {arguments.get('cur_step_num')}"
                )
                raise
