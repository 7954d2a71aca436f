"""Our callbacks in Hugging Face's Trainer: `Trainer(..., callbacks=[tensonde.transformers(LossMonitor())])`.

The Trainer tells its callbacks no loss, so it is taken from where `backward` starts: the sum over the micro-batches of
a step, each of which the Trainer (or its model, by the number of all items) has already divided. It is what the Trainer logs.
"""

from __future__ import annotations

from typing import Any

from tensonde.errors import UsageError
from tensonde.train.callback import Callback, Callbacks
from tensonde.train.context import RunContext, arguments
from tensonde.train.loop import length


def transformers(*callbacks: Callback) -> Any:
    """One TrainerCallback that calls ours, in the order given. A requested stop becomes `should_training_stop`."""
    try:
        from transformers import TrainerCallback
    except ModuleNotFoundError:
        raise UsageError(
            "tensonde.transformers needs transformers, which is not installed; run: pip install 'transformers[torch]'"
        ) from None
    made: Any = type("TensondeCallbacks", (_Events, TrainerCallback), {})
    return made(Callbacks(callbacks))


class _Events:
    """The Trainer's events as ours. A step is an optimizer step."""

    def __init__(self, given: Callbacks) -> None:
        self.given = given
        self.context = RunContext(arguments(list_callback=given.each))
        self._seen: Any = None
        self._open: Any = None
        self._awaiting = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> Any:
        from tensonde.train.seen import Seen

        loader = known.get("train_dataloader")
        batches = length(loader)
        self.context = RunContext(
            arguments(
                train_network=known.get("model"),
                network=known.get("model"),
                optimizer=known.get("optimizer"),
                train_dataset=loader,
                batch_num=-(-batches // args.gradient_accumulation_steps) if batches else None,
                epoch_num=state.num_train_epochs,
                cur_step_num=state.global_step,
                list_callback=self.given.each,
            )
        )
        self._open = self.given.enter()
        self._seen = self._open.enter_context(Seen())
        return self._call("begin", control)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **known: Any) -> Any:
        self.context.original_args().cur_epoch_num = int(state.epoch or 0) + 1
        return self._call("epoch_begin", control)

    def on_step_begin(self, args: Any, state: Any, control: Any, **known: Any) -> Any:
        arguments = self.context.original_args()
        arguments.cur_step_num = state.global_step + 1
        self._seen.forget()
        return self._call("step_begin", control)

    def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> Any:
        losses = self._seen.differentiated
        self.context.original_args().net_outputs = sum(losses[1:], losses[0]) if losses else None
        return self._call("step_end", control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **known: Any) -> Any:
        """Comes after `on_epoch_end`; `eval_` is taken off the names, as elsewhere a metric has its plain name."""
        metrics = {name.removeprefix("eval_"): value for name, value in (known.get("metrics") or {}).items()}
        self.context.original_args().metrics = metrics
        evaluation = RunContext(
            arguments(
                mode="eval", train_network=known.get("model"), network=known.get("model"), metrics=metrics,
                cur_epoch_num=1, list_callback=self.given.each,
            )
        )  # fmt: skip
        for event in ("begin", "epoch_begin", "epoch_end", "end"):
            self.given.call(event, evaluation)
        if self._awaiting:  # an epoch waits for its evaluation
            self._awaiting = False
            return self._call("epoch_end", control)
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, **known: Any) -> Any:
        if control.should_evaluate:
            self._awaiting = True
            return control
        return self._call("epoch_end", control)

    def on_train_end(self, args: Any, state: Any, control: Any, **known: Any) -> Any:
        try:
            return self._call("end", control)
        finally:
            self._open.close()

    def _call(self, event: str, control: Any) -> Any:
        self.given.call(event, self.context)
        if self.context.get_stop_requested():
            control.should_training_stop = True
        return control
