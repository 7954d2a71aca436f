"""Model: a network with its loss function, optimizer and metrics, trained and evaluated in one call each.

A step is zero_grad, forward, loss, backward, optimizer step, and nothing else: the same numbers, bit for bit, as the
loop that one would write by hand.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from tensonde.errors import UsageError
from tensonde.train.batch import device_of, moved, outcome
from tensonde.train.callback import Callback, Callbacks
from tensonde.train.context import RunContext, arguments
from tensonde.train.loop import length
from tensonde.train.progress import Progress

Given = Callback | Iterable[Callback] | None

log = logging.getLogger("tensonde.train")


@functools.cache
def _say_sink() -> None:
    log.warning("dataset_sink_mode has no effect: torch has no data sink, and callbacks are called at every step")


def _no_sink(mode: bool | None, size: int | None) -> None:
    """Scripts that come from MindSpore ask for it. Once is enough to say."""
    if mode or size not in (None, -1):
        _say_sink()


class Model:
    """`metrics` is a dictionary of names to metrics, or names alone ({"accuracy", "loss"}). `callbacks` given here
    come before those given to `train` and `eval`.
    """

    def __init__(
        self,
        network: Any,
        loss_fn: Any = None,
        optimizer: Any = None,
        metrics: Mapping[str, Any] | Iterable[str] | None = None,
        *,
        callbacks: Given = None,
    ) -> None:
        self.network, self.loss_fn, self.optimizer = network, loss_fn, optimizer
        self.callbacks = Callbacks(callbacks).each
        self.metrics: dict[str, Any] = {}
        if metrics:
            from tensonde.train.metrics import named

            self.metrics = named(metrics)

    def train(
        self,
        epoch: int,
        train_dataset: Iterable[Any],
        callbacks: Given = None,
        dataset_sink_mode: bool | None = None,
        sink_size: int | None = None,
        *,
        valid_dataset: Iterable[Any] | None = None,
        progress: bool | None = None,
    ) -> None:
        """With a `valid_dataset`, each epoch ends with an evaluation, whose results callbacks find in `metrics`.

        `dataset_sink_mode` and `sink_size` are MindSpore's: they are accepted and change nothing.
        """
        _no_sink(dataset_sink_mode, sink_size)
        if self.optimizer is None:
            raise UsageError("Model.train needs an optimizer; give one to Model(network, loss_fn, optimizer).")
        if epoch < 1:
            raise UsageError(f"Model.train was asked for {epoch} epochs; it must be at least 1.")
        several, context = self._run("train", train_dataset, callbacks, epoch)
        known, batches = context.original_args(), length(train_dataset)
        total = batches * epoch if batches is not None else None
        device = device_of(self.network)
        with several.enter(), Progress(total, shown=progress) as bar:
            several.call("begin", context)
            for number in range(epoch):
                known.cur_epoch_num = number + 1
                self.network.train()
                several.call("epoch_begin", context)
                for batch in train_dataset:
                    known.cur_step_num += 1
                    several.call("step_begin", context)
                    self._step(moved(batch, device), known)
                    bar.advance(known.net_outputs)
                    several.call("step_end", context)
                    if context.get_stop_requested():
                        break
                if valid_dataset is not None:
                    known.metrics = self.eval(valid_dataset, progress=progress)
                several.call("epoch_end", context)
                if context.get_stop_requested():
                    break
            several.call("end", context)

    def eval(
        self,
        valid_dataset: Iterable[Any],
        callbacks: Given = None,
        dataset_sink_mode: bool | None = None,
        *,
        progress: bool | None = None,
    ) -> dict[str, Any]:
        """The metrics' results by name. The network is in its evaluation mode meanwhile, and then as it was before."""
        import torch

        _no_sink(dataset_sink_mode, None)
        if not self.metrics:
            raise UsageError("Model.eval has no metrics; give some, such as Model(..., metrics={'accuracy', 'loss'}).")
        several, context = self._run("eval", valid_dataset, callbacks, 1)
        known, device = context.original_args(), device_of(self.network)
        modes = [(module, module.training) for module in self.network.modules()]
        for metric in self.metrics.values():
            metric.clear()
        try:
            self.network.eval()
            shown = Progress(length(valid_dataset), shown=progress, what="evaluation")
            with several.enter(), torch.no_grad(), shown as bar:
                known.cur_epoch_num = 1
                several.call("begin", context)
                several.call("epoch_begin", context)
                for batch in valid_dataset:
                    known.cur_step_num += 1
                    several.call("step_begin", context)
                    known.outputs, labels, known.net_outputs = outcome(self.network, self.loss_fn, moved(batch, device))
                    self._measure(known.outputs, labels, known.net_outputs)
                    bar.advance(known.net_outputs)
                    several.call("step_end", context)
                    if context.get_stop_requested():
                        break
                known.metrics = {name: metric.eval() for name, metric in self.metrics.items()}
                several.call("epoch_end", context)
                several.call("end", context)
        finally:
            for module, training in modes:
                module.training = training
        return dict(known.metrics)

    def predict(self, *inputs: Any) -> Any:
        """The network's output for these inputs, in its evaluation mode and without gradients."""
        import torch

        modes = [(module, module.training) for module in self.network.modules()]
        try:
            self.network.eval()
            with torch.no_grad():
                return self.network(*moved(inputs, device_of(self.network)))
        finally:
            for module, training in modes:
                module.training = training

    def _run(self, mode: str, dataset: Any, callbacks: Given, epochs: int) -> tuple[Callbacks, RunContext]:
        several = Callbacks([*self.callbacks, *Callbacks(callbacks).each])
        known = arguments(
            mode=mode,
            train_network=self.network,
            network=self.network,
            loss_fn=self.loss_fn,
            optimizer=self.optimizer,
            train_dataset=dataset if mode == "train" else None,
            valid_dataset=dataset if mode == "eval" else None,
            batch_num=length(dataset),
            epoch_num=epochs,
            list_callback=several.each,
        )
        return several, RunContext(known)

    def _step(self, batch: Any, known: Any) -> None:
        self.optimizer.zero_grad()
        output, _, loss = outcome(self.network, self.loss_fn, batch)
        if loss is None:
            raise UsageError(
                f"Model has no loss_fn, and {type(self.network).__name__} gave no loss; give a loss_fn, or return the loss."
            )
        loss.backward()
        self.optimizer.step()
        known.outputs, known.net_outputs = output, loss.detach()

    def _measure(self, output: Any, labels: Any, loss: Any) -> None:
        output = getattr(output, "logits", output)
        for name, metric in self.metrics.items():
            if getattr(metric, "of_loss", False):
                if loss is None:
                    raise UsageError(f"the metric {name!r} needs a loss, and there is none; give Model a loss_fn.")
                metric.update(loss)
            else:
                metric.update(output, labels)
