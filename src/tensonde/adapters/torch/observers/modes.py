"""Train and eval mode: of each root when it is trained and when it is evaluated."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.program import queries
from tensonde.program.frames import user_place
from tensonde.program.lines import CodeLine, line_at

MOST_OPTIMIZERS = 32


def depends_on_mode(module: nn.Module) -> bool:
    if isinstance(module, _DropoutNd):
        return bool(module.p > 0)
    if isinstance(module, _BatchNorm):
        return bool(module.track_running_stats)
    rate = vars(module).get("dropout")  # recurrent layers and attention keep theirs as a number
    return isinstance(rate, float) and rate > 0


class RootModes:
    """Counts of optimizer steps and of calls without gradients, by mode."""

    def __init__(self, name: str, root: nn.Module) -> None:
        self.name = name
        self.ref = weakref.ref(root)
        found = [(path, module) for path, module in root.named_modules() if depends_on_mode(module)][:64]
        self.sensitive = {path: type(module).__name__ for path, module in found}
        self.made = KNOWN.made.line(root)
        self._parts = [(path, weakref.ref(module)) for path, module in found]
        self._trained_by: dict[frozenset[int], bool] = {}
        self.trained = {"train": 0, "eval": 0}
        self.first_eval_step: int | None = None
        self.last_train_step: int | None = None
        self.partial: dict[str, int] = {}
        """Steps in which a part was in eval mode while the root was in train mode, by part."""
        self._left: dict[str, int] = {}
        """Parts that have been in eval mode without a break, and since which step."""
        self._practised: set[str] = set()
        """Parts that have been in train mode in some step."""
        self.apart = False
        """Its calls without gradients are no part of a training step, by the program's text."""
        self.evaluated = {"train": 0, "eval": 0}
        self.evaluated_steps = {"train": 0, "eval": 0}
        self._eval_step = -1
        self.eval_mode_seen = False
        self.eval_line: dict[str, Any] | None = None
        self.train_line: dict[str, Any] | None = None
        """Of a model that was left in eval mode: the only line that calls `train()`, too early or too seldom."""
        """The call of eval() that put it into the mode that it was then trained in."""
        self.evaluated_line: dict[str, Any] | None = None
        """Where it is first called without gradients in train mode."""

    def _alive(self) -> Iterator[tuple[str, nn.Module]]:
        for path, ref in self._parts:
            module = ref()
            if module is not None:
                yield path, module

    def trained_by(self, optimizer: Any) -> bool:
        """Whether one of its groups begins with a parameter of the root; looked up once for each optimizer's groups."""
        held = frozenset([id(group["params"][0]) for group in optimizer.param_groups if group["params"]])
        known = self._trained_by.get(held)
        if known is None:
            root = self.ref()
            known = root is not None and any(id(p) in held for p in root.parameters())
            if len(self._trained_by) < MOST_OPTIMIZERS:
                self._trained_by[held] = known
        return known

    def stepped(self, step: int) -> None:
        root = self.ref()
        if root is None:
            return
        if root.training:
            self.trained["train"] += 1
            self.last_train_step = step
            for path, module in self._alive():
                if module.training:
                    self._practised.add(path)
                    self._left.pop(path, None)
                else:
                    self.partial[path] = self.partial.get(path, 0) + 1
                    self._left.setdefault(path, step)
        else:
            on = any(module.training for _, module in self._alive())
            if self.sensitive and on:
                self.trained["train"] += 1
                return
            self.trained["eval"] += 1
            if self.first_eval_step is None:
                self.first_eval_step = step
                self.eval_line = KNOWN.evaluated.line(root)
                self.train_line = _train_line(KNOWN.evaluated.place(root))

    def called_without_grad(self, step: int) -> None:
        root = self.ref()
        if root is None:
            return
        mode = "train" if root.training else "eval"
        self.evaluated[mode] += 1
        if root.training and self.sensitive and self.evaluated_line is None:
            place = user_place(sys._getframe(3))
            self.evaluated_line = evaluation_line(place)
            self.apart = place is not None and queries.apart_from_training(place[0].co_filename, place[1])
        if step != self._eval_step:
            self._eval_step = step
            self.evaluated_steps[mode] += 1

    def _parts_left(self) -> list[dict[str, Any]]:
        """Parts that were in train mode once, and have stayed in eval mode since."""
        root, found = self.ref(), []
        for path, since in self._left.items():
            if path not in self._practised or root is None:
                continue
            names = path.split(".")
            holders = [root.get_submodule(".".join(names[:k])) for k in range(len(names), 0, -1)]
            line = next((line for holder in holders if (line := KNOWN.evaluated.line(holder))), None)
            found.append({"part": path, "since": since, "line": line})
        return found[:16]

    def facts(self) -> dict[str, Any]:
        return {
            "sensitive": self.sensitive,
            "trained": self.trained,
            "first_eval_step": self.first_eval_step,
            "last_train_step": self.last_train_step,
            "partial": self.partial,
            "left": self._parts_left(),
            "apart": self.apart,
            "evaluated": self.evaluated,
            "evaluated_steps": self.evaluated_steps,
            "eval_mode_seen": self.eval_mode_seen,
            "made": self.made,
            "eval_line": self.eval_line,
            "train_line": self.train_line,
            "evaluated_line": self.evaluated_line,
        }


def evaluation_line(place: CodeLine | None) -> dict[str, Any] | None:
    """Where an evaluation begins, which is where `eval()` belongs: the `with torch.no_grad():` around the call, or
    the first statement of the function."""
    if place is None:
        return None
    path, number = place[0].co_filename, place[1]
    return line_at(path, queries.evaluation_start(path, number) or number)


def _train_line(place: CodeLine | None) -> dict[str, Any] | None:
    path = place[0].co_filename if place is not None else ""
    number = queries.only_train_call(path) if path else None
    return line_at(path, number) if number else None
