"""Our callbacks in Lightning: `Trainer(callbacks=[tensonde.lightning(LossMonitor())])`."""

from __future__ import annotations

import sys
from typing import Any

from tensonde.errors import UsageError
from tensonde.train.callback import Callback, Callbacks
from tensonde.train.context import RunContext, arguments


def lightning(*callbacks: Callback) -> Any:
    """One Lightning callback that calls ours, in the order given. A requested stop becomes `trainer.should_stop`."""
    module = _package()
    base = module.Callback
    given = Callbacks(callbacks)
    made: Any = type("TensondeCallbacks", (_Events, base), {})
    return made(given)


def _package() -> Any:
    """The one that the script has imported: `lightning` and `pytorch_lightning` do not take each other's callbacks."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if name in sys.modules:
            return sys.modules[name]
    from importlib import import_module

    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    raise UsageError("tensonde.lightning needs Lightning, which is not installed; run: pip install lightning")


class _Events:
    """Lightning's events as ours. A step is a batch."""

    def __init__(self, given: Callbacks) -> None:
        self.given = given
        self.context = RunContext(arguments(list_callback=given.each))
        self.evaluation = RunContext(arguments(mode="eval", list_callback=given.each))
        self._open: Any = None

    @property
    def state_key(self) -> str:
        return f"tensonde.{id(self)}"

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self.context = RunContext(
            arguments(
                train_network=module,
                network=module,
                optimizer=trainer.optimizers[0] if trainer.optimizers else None,
                loss_fn=getattr(module, "loss_fn", None),
                train_dataset=trainer.train_dataloader,
                batch_num=_finite(trainer.num_training_batches),
                epoch_num=trainer.max_epochs,
                list_callback=self.given.each,
            )
        )
        self._open = self.given.enter()
        self._call("begin", trainer)

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        known = self.context.original_args()
        known.cur_epoch_num = trainer.current_epoch + 1
        known.batch_num = _finite(trainer.num_training_batches)
        self._call("epoch_begin", trainer)

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        self.context.original_args().cur_step_num += 1
        self._call("step_begin", trainer)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        known = self.context.original_args()
        known.outputs = outputs
        loss: Any = outputs.get("loss") if isinstance(outputs, dict) else outputs
        loss = loss.detach() if hasattr(loss, "detach") else loss
        # Lightning hands out the loss divided by the number of batches in a step, where it does the steps itself.
        divided = trainer.accumulate_grad_batches if module.automatic_optimization else 1
        known.net_outputs = loss * divided if divided != 1 and loss is not None else loss
        known.metrics = _numbers(trainer.callback_metrics)
        self._call("step_end", trainer)

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        self.context.original_args().metrics = _numbers(trainer.callback_metrics)
        self._call("epoch_end", trainer)

    def on_train_end(self, trainer: Any, module: Any) -> None:
        self._call("end", trainer)
        self._close()

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        self._close()

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        if trainer.sanity_checking:
            return
        training = self.context.original_args()
        self.evaluation = RunContext(
            arguments(
                mode="eval", train_network=module, network=module, optimizer=training.optimizer, cur_epoch_num=1,
                list_callback=self.given.each,
            )
        )  # fmt: skip
        self.given.call("begin", self.evaluation)
        self.given.call("epoch_begin", self.evaluation)

    def on_validation_batch_start(self, trainer: Any, module: Any, *batch: Any) -> None:
        if not trainer.sanity_checking:
            self.evaluation.original_args().cur_step_num += 1
            self.given.call("step_begin", self.evaluation)

    def on_validation_batch_end(self, trainer: Any, module: Any, outputs: Any, *batch: Any) -> None:
        if not trainer.sanity_checking:
            known = self.evaluation.original_args()
            known.outputs = outputs
            known.net_outputs = outputs.get("loss") if isinstance(outputs, dict) else outputs
            self.given.call("step_end", self.evaluation)

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        if not trainer.sanity_checking:
            self.evaluation.original_args().metrics = _numbers(trainer.callback_metrics)
            self.given.call("epoch_end", self.evaluation)
            self.given.call("end", self.evaluation)

    def _call(self, event: str, trainer: Any) -> None:
        self.given.call(event, self.context)
        if self.context.get_stop_requested():
            trainer.should_stop = True

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def _finite(count: Any) -> int | None:
    return int(count) if isinstance(count, int) else None


def _numbers(metrics: Any) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in metrics.items():
        try:
            found[str(name)] = float(value)
        except (TypeError, ValueError, RuntimeError):
            continue
    return found
