"""`tensonde.loop`: callbacks in a training loop that stays the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tensonde.errors import UsageError
from tensonde.train.callback import Callback, Callbacks
from tensonde.train.context import RunContext, arguments
from tensonde.train.progress import Progress


class Loop:
    """Iterating gives the batches of `epochs` passes over the loader, with the callbacks called around each.

    What the callbacks are told is what was given here, or else what the loop is seen to do: the first module with
    trainable parameters that is called, the first optimizer that steps, the tensor that `backward` starts from.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        callbacks: Callback | Iterable[Callback] | None = None,
        *,
        epochs: int = 1,
        network: Any = None,
        optimizer: Any = None,
        loss_fn: Any = None,
        progress: bool | None = None,
    ) -> None:
        if epochs < 0:
            raise UsageError(f"epochs is {epochs}; it must not be negative.")
        self.loader, self.epochs, self.progress = loader, epochs, progress
        self.callbacks = Callbacks(callbacks)
        self.context = RunContext(
            arguments(
                train_network=network,
                optimizer=optimizer,
                loss_fn=loss_fn,
                train_dataset=loader,
                batch_num=length(loader),
                epoch_num=epochs,
                list_callback=self.callbacks.each,
            )
        )

    @property
    def epoch(self) -> int:
        """From 0, as in `for epoch in range(epochs)`."""
        return max(0, int(self.context.original_args().cur_epoch_num) - 1)

    def tell(self, loss: Any = None, **metrics: Any) -> None:
        """Tells the callbacks the loss of this step (where `backward` starts from something else), or metrics."""
        known = self.context.original_args()
        if loss is not None:
            known.net_outputs = loss.detach() if hasattr(loss, "detach") else loss
        known.metrics = {**known.metrics, **metrics}

    def __iter__(self) -> Iterator[Any]:
        from tensonde.train.seen import Seen

        known, batches = self.context.original_args(), length(self.loader)
        total = batches * self.epochs if batches is not None else None
        with self.callbacks.enter(), Seen() as seen, Progress(total, shown=self.progress) as bar:
            self._call("begin")
            try:
                for epoch in range(self.epochs):
                    known.cur_epoch_num = epoch + 1
                    self._call("epoch_begin")
                    for batch in self.loader:
                        known.cur_step_num += 1
                        known.net_outputs = None
                        seen.forget()
                        self._call("step_begin")
                        yield batch
                        self._learn(seen)
                        bar.advance(known.net_outputs)
                        self._call("step_end")
                        if self.context.get_stop_requested():
                            break
                    self._call("epoch_end")
                    if self.context.get_stop_requested():
                        break
            except GeneratorExit:  # the user's `break`: the step was begun and is not known to have ended
                self._learn(seen)
            self._call("end")

    def _learn(self, seen: Any) -> None:
        known = self.context.original_args()
        known.train_network = known.train_network if known.train_network is not None else seen.network
        known.optimizer = known.optimizer if known.optimizer is not None else seen.optimizer
        if known.net_outputs is None:
            known.net_outputs = seen.loss

    def _call(self, event: str) -> None:
        self.callbacks.call(event, self.context)


loop = Loop
"""As it reads in a script: `for batch in tensonde.loop(loader, callbacks=...)`."""


def length(loader: Any) -> int | None:
    """How many batches; None where the loader does not say, as for an iterable dataset."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None
