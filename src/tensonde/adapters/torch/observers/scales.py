"""Mean and spread of what models are given, in training and in evaluation, by feature or channel: a few calls of each."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.observers.making import shares
from tensonde.adapters.torch.observers.modes import evaluation_line
from tensonde.adapters.torch.observers.reading import READING
from tensonde.adapters.torch.run import batches
from tensonde.adapters.torch.tensors import dense_in
from tensonde.program import queries
from tensonde.program.frames import is_user, user_place
from tensonde.program.lines import line_at
from tensonde.program.origin import variable_line
from tensonde.program.parting import parting, scaled_apart
from tensonde.program.ways import way_of

Held = tuple[str, int, str]

MOST_TRAINED = 12
MOST_EVALUATED = 48
MOST_ROOTS = 8
MOST_ELEMENTS = 1 << 16
MOST_FEATURES = 64
MOST_PARTS = 8
"""Of a tuple, a list or a dict that is looked at for a tensor."""
CHANNELS = 16
"""A second dimension of no more is taken for channels."""


class Scales:
    def __init__(self) -> None:
        self.trained: dict[str, list[dict[str, Any]]] = {}
        self.evaluated: dict[str, list[dict[str, Any]]] = {}
        self._calls: dict[str, tuple[int, int]] = {}
        """Of each root: the step of its last evaluation, and how often it was called in it."""
        self._made: dict[str, dict[str, Any] | None] = {}
        """The line of the data set that made what each root is trained on."""
        self._held: dict[str, Held | None] = {}
        """The variable that held it."""
        self._parted: set[str] = set()
        """Roots of which the ways of both were looked at."""
        self._scaled: dict[str, dict[str, Any] | None] = {}
        """Where the program's text may scale the two apart."""

    def training(self, root: str, args: tuple[Any, ...], kwargs: dict[str, Any], step: int) -> None:
        """A root is called in train mode, with gradients."""
        if step >= 4 and step & (step - 1):
            return
        rows = self._rows(self.trained, root)
        tensor = _first(args, kwargs)
        if tensor is not None and len(rows) < MOST_TRAINED:
            if root not in self._made:
                self._made[root] = _sample_line(tensor)
                self._held[root] = _holding(sys._getframe(2), tensor)
            _note(rows, tensor, {"step": step})

    def evaluation(self, root: str, args: tuple[Any, ...], kwargs: dict[str, Any], step: int) -> None:
        """A root is called in eval mode, without gradients: the first calls of a step, then ever fewer."""
        last, count = self._calls.get(root, (-1, 0))
        count = count + 1 if last == step else 1
        self._calls[root] = step, count
        if count & (count - 1):
            return
        rows = self._rows(self.evaluated, root)
        tensor = _first(args, kwargs)
        if tensor is not None and len(rows) < MOST_EVALUATED:
            frame = sys._getframe(2)
            made = _sample_line(tensor)
            if made is not None and made == self._made.get(root):  # the same code: it was set up in another way
                made = _dataset_line(frame) or made
            made = made or _made(frame, tensor) or evaluation_line(user_place(frame))
            if (place := self._held.get(root)) is not None and root not in self._parted:
                self._parted.add(root)
                made = _parted(place, held := _holding(frame, tensor), made)
                self._scaled[root] = _scaled(place, held)
            _note(rows, tensor, {"step": step, "line": made, "scaled": self._scaled.get(root)})

    def _rows(self, kept: dict[str, list[dict[str, Any]]], root: str) -> list[dict[str, Any]]:
        return kept.setdefault(root, []) if root in kept or len(kept) < MOST_ROOTS else []

    def facts(self) -> dict[str, Any]:
        return {
            root: {"trained": rows, "evaluated": self.evaluated[root]}
            for root, rows in self.trained.items()
            if self.evaluated.get(root)
        }


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The first tensor that a root is given, where it is a batch of numbers."""
    tensors = dense_in((args, kwargs))[:1]
    if not tensors or tensors[0].ndim < 2 or not tensors[0].is_floating_point() or not tensors[0].numel():
        return None
    return tensors[0].detach() if tensors[0].grad_fn is None else None


def _note(rows: list[dict[str, Any]], tensor: Tensor, known: dict[str, Any]) -> None:
    size = max(1, tensor[0].numel())
    some = tensor[: max(2, MOST_ELEMENTS // size)]
    if some.ndim == 2:
        some = some[:, :MOST_FEATURES]
    shape = list(tensor.shape)
    READING.later([some], lambda some: rows.append({**known, **_spread(some.float(), shape)}))


def _spread(values: Tensor, shape: list[int]) -> dict[str, Any]:
    if values.ndim > 2 and values.shape[1] <= CHANNELS:
        values = values.transpose(0, 1).flatten(1).T
    elif values.ndim == 3 and values.shape[2] <= CHANNELS:
        values = values.flatten(0, 1)  # features come last
    elif values.ndim > 2:
        values = values.reshape(-1, 1)
    return {
        "samples": shape[0],
        "shape": shape[1:],
        "mean": values.mean(0).tolist(),
        "std": values.std(0, correction=0).tolist(),
    }


def _holding(frame: FrameType | None, tensor: Tensor) -> Held | None:
    """The nearest variable of the user's that holds it: file, line, name."""
    while frame is not None:
        if is_user(frame.f_code):
            for name, value in list(frame.f_locals.items()):
                if issubclass(type(value), Tensor) and value.shape == tensor.shape and shares(value, tensor):
                    return frame.f_code.co_filename, frame.f_lineno, name
        frame = frame.f_back
    return None


def _parted(trained: Held, evaluated: Held | None, made: dict[str, Any] | None) -> dict[str, Any] | None:
    """Where one piece of code prepares both, the line at which they part before it."""
    if evaluated is None or made is None:
        return made
    one, other = way_of(*trained), way_of(*evaluated)
    if (evaluated[0], made.get("line")) not in one.lines & other.lines:
        return made
    place = parting(one, other)
    return line_at(*place) if place is not None else made


def _scaled(trained: Held, evaluated: Held | None) -> dict[str, Any] | None:
    place = scaled_apart(way_of(*trained), way_of(*evaluated)) if evaluated is not None else None
    return line_at(*place) if place is not None else None


def _sample_line(tensor: Tensor) -> dict[str, Any] | None:
    """Of a part of the loader's batch: the line of the user's `__getitem__` that makes it."""
    batch = batches.latest
    part = batch.part_of(tensor) if batch is not None else None
    return batch.part_line(part) if batch is not None and part is not None else None


def _dataset_line(frame: FrameType | None) -> dict[str, Any] | None:
    """Where the variable got its value that holds the data set of the latest batch."""
    dataset = batches.latest.dataset() if batches.latest is not None else None
    while frame is not None and dataset is not None:
        if is_user(frame.f_code) and (found := variable_line(dataset, frame, frame.f_lineno)) is not None:
            return found
        frame = frame.f_back
    return None


def _made(frame: FrameType | None, tensor: Tensor) -> dict[str, Any] | None:
    """Where the outermost variable that holds this very tensor (or what it is a part of) got its value; a tuple or a dict of a few tensors holds them as well."""
    found = None
    while frame is not None:
        if is_user(frame.f_code):
            held = list(frame.f_locals.items())
            same = [name for name, value in held if isinstance(value, Tensor) and _is(value, tensor)]
            same = same or [name for name, value in held if isinstance(value, Tensor) and value is tensor._base]
            same = same or [name for name, value in held if any(_is(part, tensor) for part in _parts(value))]
            path = frame.f_code.co_filename
            lines = [number for name in same if (number := queries.assignment(path, name, before=frame.f_lineno))]
            found = line_at(path, max(lines)) if lines else found
        frame = frame.f_back
    return found


def _parts(value: Any) -> list[Tensor]:
    parts = list(value.values()) if type(value) is dict else value if type(value) in (tuple, list) else []
    return [part for part in parts if isinstance(part, Tensor)] if len(parts) <= MOST_PARTS else []


def _is(value: Tensor, tensor: Tensor) -> bool:
    """The same values at the same place: `detach()` was called on what the training gave."""
    if value is tensor or value.shape != tensor.shape or type(value) is not Tensor:
        return value is tensor
    return value.layout is torch.strided and value.data_ptr() == tensor.data_ptr() != 0
