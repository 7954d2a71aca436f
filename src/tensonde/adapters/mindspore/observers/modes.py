"""Train and eval mode: of each root when it is trained and when it is evaluated."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from tensonde.adapters.mindspore.observers.origins import KNOWN
from tensonde.adapters.mindspore.run.naming import cells_in, parameters_in
from tensonde.program.frames import user_place
from tensonde.program.lines import line_of


def depends_on_mode(cell: Any) -> bool:
    kind = type(cell).__name__
    if kind.startswith("Dropout"):
        rate = getattr(cell, "p", None)
        keep = getattr(cell, "keep_prob", 1.0)
        return bool(rate if rate is not None else 1.0 - keep > 0)
    if kind.startswith("BatchNorm") or kind == "SyncBatchNorm":
        return getattr(cell, "use_batch_statistics", None) is None
    rate = vars(cell).get("dropout")
    return isinstance(rate, float) and rate > 0


class RootModes:
    """Counts of optimizer steps and of calls without gradients, by mode."""

    def __init__(self, name: str, root: Any) -> None:
        self.name = name
        self.ref = weakref.ref(root)
        found = [(path, cell) for path, cell in cells_in(root) if depends_on_mode(cell)][:64]
        self.sensitive = {path or name: type(cell).__name__ for path, cell in found}
        self.made = KNOWN.made.line(root)
        self._parts = [(path or name, weakref.ref(cell)) for path, cell in found]
        self._held: dict[int, bool] = {}
        self.trained = {"train": 0, "eval": 0}
        self.first_eval_step: int | None = None
        self.last_train_step: int | None = None
        self.partial: dict[str, int] = {}
        self.evaluated = {"train": 0, "eval": 0}
        self.evaluated_steps = {"train": 0, "eval": 0}
        self._eval_step = -1
        self.eval_mode_seen = False
        self.eval_line: dict[str, Any] | None = None
        self.evaluated_line: dict[str, Any] | None = None
        self.in_train = False
        """The mode of the last call with gradients: a script may change it before the optimizer steps."""
        self._off: list[str] = []

    def trained_by(self, optimizer: Any) -> bool:
        known = self._held.get(id(optimizer))
        if known is None:
            root = self.ref()
            held = {id(p) for p in optimizer.parameters}
            known = self._held[id(optimizer)] = root is not None and any(id(p) in held for p in parameters_in(root))
        return known

    def called(self, root: Any, step: int, *, grad: bool) -> None:
        training = bool(root.training)
        self.eval_mode_seen |= not training
        parts = [(path, cell) for path, ref in self._parts if (cell := ref()) is not None]
        if grad:
            self._off = [path for path, cell in parts if not cell.training]
            self.in_train = training or len(self._off) < len(parts)
            return
        mode = "train" if training else "eval"
        self.evaluated[mode] += 1
        if training and self.sensitive and self.evaluated_line is None:
            self.evaluated_line = line_of(user_place(sys._getframe(2)))
        if step != self._eval_step:
            self._eval_step = step
            self.evaluated_steps[mode] += 1

    def stepped(self, step: int) -> None:
        root = self.ref()
        if root is None:
            return
        if self.in_train:
            self.trained["train"] += 1
            self.last_train_step = step
            for path in self._off:
                self.partial[path] = self.partial.get(path, 0) + 1
            return
        self.trained["eval"] += 1
        if self.first_eval_step is None:
            self.first_eval_step = step
            self.eval_line = KNOWN.evaluated.line(root)

    def facts(self) -> dict[str, Any]:
        return {
            "sensitive": self.sensitive,
            "trained": self.trained,
            "first_eval_step": self.first_eval_step,
            "last_train_step": self.last_train_step,
            "partial": self.partial,
            "evaluated": self.evaluated,
            "evaluated_steps": self.evaluated_steps,
            "eval_mode_seen": self.eval_mode_seen,
            "made": self.made,
            "eval_line": self.eval_line,
            "train_line": None,
            "evaluated_line": self.evaluated_line,
        }
