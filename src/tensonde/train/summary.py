"""SummaryCollector: the training as TensorBoard event files, through TensorBoard's own writer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensonde.errors import UsageError
from tensonde.train.callback import Callback
from tensonde.train.extras import main_process, need
from tensonde.train.monitors import loss_of

if TYPE_CHECKING:
    from tensonde.train.context import RunContext


class SummaryCollector(Callback):
    """Writes loss, learning rates and metrics every `collect_freq` steps, and histograms of the parameters and their
    gradients every `histogram_freq` steps (0: none). Rank 0 writes.
    """

    def __init__(self, summary_dir: str | Path = "summary", *, collect_freq: int = 10, histogram_freq: int = 0) -> None:
        if collect_freq < 1 or histogram_freq < 0:
            raise UsageError(f"collect_freq is {collect_freq} and histogram_freq {histogram_freq}; they count steps.")
        self._writer_class = need("torch.utils.tensorboard", extra="train", what="SummaryCollector").SummaryWriter
        self.summary_dir = Path(summary_dir)
        self.collect_freq, self.histogram_freq = collect_freq, histogram_freq
        self._writer: Any = None

    def __exit__(self, *failure: Any) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def on_train_step_end(self, run_context: RunContext) -> None:
        arguments = run_context.original_args()
        step = arguments.cur_step_num
        if not main_process():
            return
        if self._writer is None:
            self._writer = self._writer_class(str(self.summary_dir))
        if step % self.collect_freq == 0 or step == 1:
            loss = loss_of(arguments)
            if loss is not None:
                self._writer.add_scalar("loss", loss, step)
            groups = arguments.optimizer.param_groups if arguments.optimizer is not None else []
            for number, group in enumerate(groups):
                self._writer.add_scalar(f"lr/{number}", float(group["lr"]), step)
        if self.histogram_freq and step % self.histogram_freq == 0 and arguments.train_network is not None:
            self._histograms(arguments.train_network, step)

    def epoch_end(self, run_context: RunContext) -> None:
        arguments = run_context.original_args()
        for name, value in (arguments.get("metrics") or {}).items():
            if self._writer is not None and isinstance(value, int | float):
                self._writer.add_scalar(f"eval/{name}", value, arguments.cur_step_num)

    def end(self, run_context: RunContext) -> None:
        if run_context.original_args().mode == "train" and self._writer is not None:
            self._writer.close()
            self._writer = None

    def _histograms(self, network: Any, step: int) -> None:
        import torch

        for name, parameter in network.named_parameters():
            for what, tensor in (("weights", parameter.detach()), ("gradients", parameter.grad)):
                if tensor is not None and tensor.numel() and bool(torch.isfinite(tensor).all()):
                    self._writer.add_histogram(f"{what}/{name}", tensor, step)
