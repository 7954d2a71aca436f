"""What a program compares with the outputs of a model that it evaluates: a loss, or `outputs.argmax(1) == labels`.

After a model was called without gradients between steps, calls of the function API are looked at for a while: what is made of its outputs is followed, and where it meets
something else in a comparison, rows of both are kept. A few evaluations, a few calls of each.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from tensonde.adapters.torch.observers.making import made_line
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.seams.function_mode import Looker, look, look_away, unseen
from tensonde.adapters.torch.tensors import is_plain, tensors_in
from tensonde.experiments.held_out import Evaluation
from tensonde.experiments.relation import MOST_CLASSES, MOST_ROWS
from tensonde.experiments.step import Array
from tensonde.model.site import SourceLine
from tensonde.program.frames import user_place
from tensonde.program.lines import from_json, line_of

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.state import RunState

MOST_STEPS, MOST_CALLS, MOST_FUNCTIONS = 24, 16, 48
"""Evaluations that are looked at, calls of a model in each, calls of functions after each of those."""
MANY_WRITES = 64
"""Writes into an output (`scores[row, seen] = -1e9`) that count as one call."""
MOST_LOOKED = 64
"""Steps in which a model was called without gradients: where nothing is ever compared (a policy that acts), it is no evaluation."""
MOST_ELEMENTS = 1 << 19
"""Of a tensor that is held or kept."""
_CLASSES = frozenset(("eq", "ne", "__eq__", "__ne__"))
_SCORES = frozenset(("cross_entropy", "nll_loss"))
_DISTANCES = frozenset(
    ("sub", "__sub__", "rsub", "__rsub__", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
     "binary_cross_entropy_with_logits", "cosine_similarity")
)  # fmt: skip


class Evaluations(Looker):
    """Belongs to the training thread."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self.off = False
        self.seen: dict[int, Evaluation] = {}
        """By step: what was compared first in it."""
        self._on = False
        self._known: dict[int, tuple[weakref.ref[nn.Module], int, bool]] = {}
        """By model: how many optimizers there were when it was looked at, and whether one of them trains it."""
        self._step = -1
        self._steps = 0
        self._calls = 0
        self._functions: float = 0
        self._made: dict[int, Tensor] = {}
        """By id: outputs, and what was made of them."""
        self._inputs: Tensor | None = None
        self._parts: list[tuple[Array, Array, Array | None]] = []
        self._place: Any = None
        self._lines: tuple[SourceLine | None, SourceLine | None, SourceLine | None] = (None, None, None)

    def gave(self, root: nn.Module, inputs: Any, out: Any, step: int) -> None:
        """A model has given `out` without gradients, between steps."""
        if self.off or not step or not self._is_trained(root):
            return
        if step != self._step:
            self._steps += 1
            if len(self.seen) >= MOST_STEPS or self._steps > MOST_LOOKED:
                self.off = True
                return
            self._step, self._calls, self._parts, self._place = step, 0, [], None
        self._calls += 1
        made = [t for t in tensors_in(out)[:2] if is_plain(t) and t.device.type == "cpu" and t.numel() <= MOST_ELEMENTS]
        if self._calls > MOST_CALLS or not made or sum(len(said) for said, _, _ in self._parts) >= MOST_ROWS:
            self.rest()
            return
        self._made = {id(t): t for t in made}
        given = [t for t in tensors_in(inputs)[:1] if is_plain(t) and t.device.type == "cpu"]
        self._inputs = given[0] if given and given[0].ndim > 1 and given[0].numel() <= MOST_ELEMENTS else None
        self._functions = MOST_FUNCTIONS
        if not self._on:
            self._on = True
            look(self)

    def _is_trained(self, root: nn.Module) -> bool:
        optimizers = KNOWN.mine()
        known = self._known.get(id(root))
        if known is None or known[0]() is not root or known[1] != len(optimizers):
            held = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
            trained = any(id(p) in held for p in root.parameters())
            known = self._known[id(root)] = weakref.ref(root), len(optimizers), trained
        return known[2]

    def rest(self) -> None:
        """A model is about to run, which must not see a mode of ours, or the evaluation is over."""
        if self._on:
            self._on = False
            self._made, self._inputs = {}, None
            look_away(self)

    def called(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[..., Any],
        frame: FrameType,
    ) -> Any:
        out = run(*args, **kwargs)
        if self._made and not self._state.stack:
            try:
                with unseen():
                    self._look(getattr(func, "__name__", ""), args, kwargs, out, frame)
            except Exception as problem:
                self.off = True
                self._made = {}
                self._state.session.guard.contain("looking at an evaluation", problem)
        return out

    def _look(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, frame: FrameType) -> None:
        given = [t for t in (*args[:4], *kwargs.values()) if isinstance(t, Tensor)]
        mine = [t for t in given if id(t) in self._made]
        if not mine:
            return
        self._functions -= 1 if isinstance(out, Tensor | tuple) else 1 / MANY_WRITES
        if self._functions < 0:
            self._made = {}
            return
        others = [t for t in given if id(t) not in self._made and not isinstance(t, nn.Parameter)]
        if others and (name in _CLASSES or name in _SCORES or name in _DISTANCES):
            self._compared(name, mine[0], others[0], frame)
        made = [t for t in tensors_in(out)[:2] if is_plain(t) and t.numel() <= MOST_ELEMENTS]
        self._made |= {id(t): t for t in made}

    def _compared(self, name: str, said: Tensor, target: Tensor, frame: FrameType) -> None:
        place = user_place(frame)
        if self._place is not None and place != self._place:
            return  # one comparison is enough
        pair = _pair(name, said, target)
        if pair is None:
            return
        inputs = self._inputs
        rows = inputs is not None and len(inputs) == len(pair[0]) and inputs.dtype is not torch.bfloat16
        kept = np.array(inputs.detach().numpy()) if inputs is not None and rows else None
        if self._place is None:
            self._place = place
            self._lines = (
                from_json(line_of(place)),
                from_json(made_line(target, frame)),
                None if inputs is None else from_json(made_line(inputs, frame)),
            )
        self._parts.append((*pair, kept))
        self.seen[self._step] = self._evaluation()
        for step in list(self.seen)[1:-1]:  # rows of the first and the last are enough
            self.seen[step] = replace(self.seen[step], inputs=None)

    def _evaluation(self) -> Evaluation:
        alike = [
            p
            for p in self._parts
            if p[0].shape[1:] == self._parts[0][0].shape[1:] and p[1].ndim == self._parts[0][1].ndim
        ]
        known = all(
            p[2] is not None and p[2].shape[1:] == alike[0][2].shape[1:] for p in alike if alike[0][2] is not None
        )
        return Evaluation(
            self._step,
            np.concatenate([p[0] for p in alike])[:MOST_ROWS],
            np.concatenate([p[1] for p in alike])[:MOST_ROWS],
            np.concatenate([p[2] for p in alike])[:MOST_ROWS] if known and alike[0][2] is not None else None,
            *self._lines,
        )


def _pair(name: str, said: Tensor, target: Tensor) -> tuple[Array, Array] | None:
    """Rows of what was said and of what it was compared with; classes are whole numbers."""
    said, target = said.detach(), target.detach()
    if (
        not is_plain(target)
        or target.device.type != "cpu"
        or not said.ndim
        or not target.numel()
        or target.is_complex()
    ):
        return None
    if name in _SCORES:
        if target.is_floating_point() or said.ndim < 2 or target.shape != said.shape[:1] + said.shape[2:]:
            return None
        scores = said.movedim(1, -1).reshape(-1, said.shape[1]).float().log_softmax(1)
        return _array(scores), _array(target.reshape(-1))
    if name in _CLASSES and said.ndim == 2 and target.shape == (len(said), 1) and said.shape[1] > 1:
        return _among(said, target)
    if said.numel() != target.numel() or said.shape[:1] != target.shape[:1]:
        return None
    if name in _CLASSES:
        if said.is_floating_point() or target.is_floating_point() or said.dtype is torch.bool:
            return None
        return _array(said.reshape(-1)), _array(target.reshape(-1))
    if not said.is_floating_point():
        return None
    return _array(said.reshape(len(said), -1).float()), _array(target.reshape(len(target), -1).float())


def _among(said: Tensor, target: Tensor) -> tuple[Array, Array] | None:
    """`best == wanted[:, None]`: several classes are said of each row, and one of them is to be right. Many classes are folded into few."""
    if said.is_floating_point() or target.is_floating_point() or said.dtype is torch.bool:
        return None
    said, target = said[:MOST_ROWS], target[:MOST_ROWS]
    kinds = min(MOST_CLASSES, int(torch.maximum(said.max(), target.max())) + 1)
    rows = np.zeros((len(said), kinds))
    np.put_along_axis(rows, _array(said % kinds), 1.0, 1)
    return rows, _array(target[:, 0] % kinds)


def _array(tensor: Tensor) -> Array:
    return np.array(tensor.numpy())
