"""ModelCheckpoint: saves the weights every N steps or seconds and keeps the newest few."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tensonde.errors import UsageError
from tensonde.train.callback import Callback
from tensonde.train.extras import main_process
from tensonde.train.weights import save_checkpoint

if TYPE_CHECKING:
    from tensonde.train.context import Arguments, RunContext


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """`save_checkpoint_seconds` > 0 counts instead of the steps. `keep_checkpoint_max` 0 keeps all."""

    save_checkpoint_steps: int = 1
    save_checkpoint_seconds: float = 0
    keep_checkpoint_max: int = 5
    save_optimizer: bool = True

    def __post_init__(self) -> None:
        for name in ("save_checkpoint_steps", "save_checkpoint_seconds", "keep_checkpoint_max"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} is {getattr(self, name)}; it must not be negative.")
        if not self.save_checkpoint_steps and not self.save_checkpoint_seconds:
            raise UsageError("save_checkpoint_steps and save_checkpoint_seconds are both 0; set one of them.")


class ModelCheckpoint(Callback):
    """Saves `<prefix>-<epoch>_<step in the epoch>.safetensors` in `directory`, and once more at the end. Rank 0 saves."""

    def __init__(
        self, prefix: str = "CKP", directory: str | Path = ".", config: CheckpointConfig | None = None
    ) -> None:
        if not prefix or "/" in prefix:
            raise UsageError(f"the prefix {prefix!r} of a checkpoint must be the beginning of a file's name.")
        self.prefix, self.directory = prefix, Path(directory)
        self.config = config or CheckpointConfig()
        self.saved: deque[Path] = deque()
        """Those that are there now, oldest first."""
        self.latest: Path | None = None
        self._last_time = 0.0
        self._last_step = 0

    def on_train_begin(self, run_context: RunContext) -> None:
        self._last_time = time.monotonic()
        self._last_step = run_context.original_args().cur_step_num

    def on_train_step_end(self, run_context: RunContext) -> None:
        arguments = run_context.original_args()
        seconds = self.config.save_checkpoint_seconds
        if seconds:
            due = time.monotonic() - self._last_time >= seconds
        else:
            due = arguments.cur_step_num - self._last_step >= self.config.save_checkpoint_steps
        if due:
            self._save(arguments)

    def on_train_end(self, run_context: RunContext) -> None:
        arguments = run_context.original_args()
        if arguments.cur_step_num > self._last_step:
            self._save(arguments)

    def on_eval_begin(self, run_context: RunContext) -> None:
        """An evaluation changes no weights."""

    def _save(self, arguments: Arguments) -> None:
        self._last_time, self._last_step = time.monotonic(), arguments.cur_step_num
        if not main_process():
            return
        network = arguments.train_network
        if network is None:
            raise UsageError(
                "ModelCheckpoint does not know the network; give it, e.g. tensonde.loop(..., network=model)."
            )
        batches = arguments.batch_num
        step = (arguments.cur_step_num - 1) % batches + 1 if batches else arguments.cur_step_num
        path = self.directory / f"{self.prefix}-{arguments.cur_epoch_num}_{step}.safetensors"
        facts = {"epoch": arguments.cur_epoch_num, "step": arguments.cur_step_num}
        save_checkpoint(
            network, path, optimizer=arguments.optimizer if self.config.save_optimizer else None, append=facts
        )
        self.latest = path
        if path in self.saved:
            self.saved.remove(path)
        self.saved.append(path)
        while self.config.keep_checkpoint_max and len(self.saved) > self.config.keep_checkpoint_max:
            self.saved.popleft().unlink(missing_ok=True)
