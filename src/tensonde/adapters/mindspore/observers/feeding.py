"""What the training is fed: the inputs of roots, and the data sets that it goes through."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sized
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensonde.adapters.mindspore.observers.origins import KNOWN
from tensonde.adapters.mindspore.tensors import is_tensor, tensors_in, values_of
from tensonde.program.frames import FRAMEWORK, is_user, owner_of, user_place
from tensonde.program.lines import CodeLine, line_of

COMPARED = 64
"""Steps whose batch is compared with the first, until one differs, which is the second as a rule."""
MOST_INPUTS = 12
MOST_ELEMENTS = 1 << 16
MOST = 16
MOST_BATCHES = 256


class Batches:
    """`given` is called by the training thread for each call of a root that is trained."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._inputs: list[dict[str, Any]] = []
        self._repeats: dict[str, list[int]] = {}
        self._first: dict[str, int] = {}
        self._call_place: CodeLine | None = None
        self._labels: list[list[int]] = []
        self._label_place: CodeLine | None = None

    def differentiated(self, args: tuple[Any, ...], step: int) -> None:
        """A function or cell is about to be differentiated. What it is given last that is a whole number per sample are its labels."""
        if len(self._labels) >= MOST_BATCHES or (step >= COMPARED and step % 16):
            return
        arrays = [
            values for tensor in tensors_in(args)[:8] if is_tensor(tensor) and (values := values_of(tensor)) is not None
        ]
        labels = [array for array in arrays if array.ndim == 1 and array.dtype.kind in "iu" and array.size]
        if len(arrays) < 2 or not labels:
            return
        classes, counts = np.unique(labels[-1][:MOST_ELEMENTS], return_counts=True)
        top = int(counts.argmax())
        self._labels.append([int(counts.sum()), int(counts[top]), int(classes[top])])
        if self._label_place is None:
            self._label_place = user_place(sys._getframe(3))

    def given(self, root: str, args: tuple[Any, ...], kwargs: dict[str, Any], step: int) -> None:
        if step >= COMPARED and step & (step - 1):
            return
        tally = self._repeats.setdefault(root, [0, 0])
        looking = len(self._inputs) < MOST_INPUTS and (step < 4 or step & (step - 1) == 0)
        if not looking and (tally[1] or step >= COMPARED):
            return
        tensors = [tensor for tensor in tensors_in((args, kwargs))[:4] if is_tensor(tensor)]
        arrays = [values for tensor in tensors if (values := values_of(tensor)) is not None]
        if arrays and arrays[0].ndim and (len(arrays[0]) in self._sizes or len(self._sizes) < 64):
            self._sizes[len(arrays[0])] = self._sizes.get(len(arrays[0]), 0) + 1
        if arrays and not tally[1] and step < COMPARED:
            found = hash(tuple((array.shape, np.ascontiguousarray(array).tobytes()) for array in arrays))
            tally[0] += 1
            tally[1] += self._first.setdefault(root, found) != found
            if self._call_place is None:
                self._call_place = _fed_from(sys._getframe(3))
        if looking:
            for k, array in enumerate(arrays):
                if array.dtype.kind == "f" and array.ndim >= 2 and array.size:
                    self._inputs.append({"root": root, "index": k, "step": step, **_input(array)})

    def facts(self) -> dict[str, Any]:
        return {
            "labels": self._labels,
            "label_line": line_of(self._label_place),
            "sizes": self._sizes,
            "inputs": self._inputs,
            "repeats": {root: {"looked_at": n, "differ": d} for root, (n, d) in list(self._repeats.items())[:MOST]},
            "call_line": line_of(self._call_place),
        }


def _fed_from(frame: FrameType | None) -> CodeLine | None:
    """The line that feeds a step: where a function is differentiated, the one that calls MindSpore for it, not the one inside of it that
    calls the model."""
    inner, outside = None, False
    while frame is not None:
        code = frame.f_code
        if is_user(code):
            if outside:
                return code, frame.f_lineno
            inner = inner or (code, frame.f_lineno)
        elif inner is not None and owner_of(code) == FRAMEWORK:
            outside = True
        frame = frame.f_back
    return inner


def _input(array: NDArray[Any]) -> dict[str, Any]:
    rows = array[: max(2, MOST_ELEMENTS // array[0].size)].reshape(-1, array[0].size)[:, :MOST_ELEMENTS]
    values = rows.astype(np.float32)
    return {
        "shape": list(array.shape),
        "absmax": float(np.abs(values).max()),
        "mean": float(values.mean()),
        "std": float(values.std()),
        "same_rows": bool(len(rows) > 1 and (rows == rows[:1]).all()),
        "sum": float(values.sum(dtype=np.float64)),
        "features": _features(values) if array.ndim == 2 else None,
    }


def _features(values: NDArray[Any]) -> dict[str, float] | None:
    """The column with the largest values, and what is usual for the others."""
    if not 2 <= values.shape[1] <= 1024 or len(values) < 4:
        return None
    sizes = np.abs(values).max(0)
    largest = int(sizes.argmax())
    return {"index": largest, "absmax": float(sizes[largest]), "usual": float(np.median(sizes))}


class Loaders:
    """Data sets by the pass that began last. Making an iterator begins a pass; going through it again begins the next."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], dict[str, Any]]] = {}
        self._fresh: weakref.WeakSet[Any] = weakref.WeakSet()
        self._current: dict[str, Any] | None = None
        self._places: dict[int, CodeLine] = {}

    def made(self, iterator: Any, dataset: Any) -> None:
        self._fresh.add(iterator)
        self._begun(dataset)

    def iterated(self, iterator: Any, dataset: Any) -> None:
        if iterator in self._fresh:
            self._fresh.discard(iterator)
        else:
            self._begun(dataset)

    def _begun(self, dataset: Any) -> None:
        known = self._entries.get(id(dataset))
        if known is None or known[0]() is not dataset:
            if len(self._entries) >= MOST:
                return
            known = self._entries[id(dataset)] = (weakref.ref(dataset), _described(dataset))
        self._current = known[1]
        self._current["passes"] += 1
        place = user_place(sys._getframe(2))
        if place is not None and self._places.get(id(self._current)) != place:  # the line that goes on doing it
            self._places[id(self._current)] = place
            self._current["iterated"] = line_of(place)

    def stepped(self) -> None:
        if self._current is not None:
            self._current["steps"] += 1

    def facts(self) -> list[dict[str, Any]]:
        return [entry for _, entry in self._entries.values()]


def _described(dataset: Any) -> dict[str, Any]:
    """Nothing is asked of it that would build its pipeline."""
    batch, source, depth = None, dataset, 0
    while getattr(source, "children", None) and depth < 32:
        size = getattr(source, "batch_size", None)
        batch = size if batch is None and isinstance(size, int) else batch
        source, depth = source.children[0], depth + 1
    held, sampler = getattr(source, "source", None), getattr(source, "sampler", None)
    length = len(held) if isinstance(held, Sized) else getattr(source, "source_len", None)
    return {
        "made": KNOWN.described.line(source) or KNOWN.described.line(dataset),
        "batch_size": batch,
        "sampler": type(sampler).__name__ if sampler is not None else "SequentialSampler",
        "dataset": type(source).__name__,
        "length": length if isinstance(length, int) and length > 0 else None,
        "passes": 0,
        "steps": 0,
        "iterated": None,
    }


class Loads:
    """Checkpoints that are loaded into a network while it is trained, by the line that loads."""

    def __init__(self) -> None:
        self._over: dict[CodeLine, dict[str, Any]] = {}

    def loaded(self, network: Any, state: dict[str, Any], steps: int, place: CodeLine | None) -> None:
        """`steps`: of the optimizer of its parameters, so far."""
        if place is None or not steps or (place not in self._over and len(self._over) >= MOST):
            return
        arrays = [values_of(value) for value in list(state.values())[:8] if is_tensor(value)]
        seen = tuple(float(array.sum(dtype=np.float64)) for array in arrays if array is not None)
        empty = {"type": type(network).__name__, "times": 0, "same": 0, "steps": [], "seen": None}
        known = self._over.setdefault(place, empty)
        known["same"] += known["seen"] == seen
        known["times"] += 1
        known["steps"] = [*known["steps"][:7], steps]
        known["seen"] = seen

    def facts(self) -> list[dict[str, Any]]:
        return [
            {**{name: known[name] for name in ("type", "times", "same", "steps")}, "line": line_of(place)}
            for place, known in self._over.items()
        ]


LOADERS, LOADS = Loaders(), Loads()
"""Of this process: data sets are gone through before the training is known."""
