"""What the training is fed: classes in each batch, the range and sameness of inputs, loaders and what they hold."""

from __future__ import annotations

import dis
import inspect
import random
import sys
import weakref
from math import prod
from types import FrameType
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset, TensorDataset

from tensonde.adapters.torch.capture import capturing
from tensonde.adapters.torch.checksum import crc, memory_sum, sums
from tensonde.adapters.torch.observers.making import shares, target_line
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.observers.reading import READING
from tensonde.adapters.torch.observers.samplers import deals, dealt, is_distributed, weighted
from tensonde.adapters.torch.observers.samples import shared
from tensonde.adapters.torch.run import batches
from tensonde.adapters.torch.run.batches import sample_place
from tensonde.adapters.torch.seams.vanishing import Ref
from tensonde.adapters.torch.tensors import dense_in, is_dense
from tensonde.program import queries
from tensonde.program.classes import class_of
from tensonde.program.frames import is_user, user_place
from tensonde.program.lines import CodeLine, line_at, line_of
from tensonde.program.passes import same_each_time

MOST_SHARED = 20_000
"""Samples of a share that are noted."""
MOST_CONTENT = 1 << 26
"""Bytes of a tensor of a data set that are summed up."""
MOST_BATCHES = 256
MOST_ELEMENTS = 1 << 16
OFTEN, FEW = 64, 16
"""So many first targets are looked at, on the host and on a device; of later ones every 16th."""
SHIFTS = 16
"""Targets that are held against inputs, whether they are these one ahead."""
COMPARED = 64
"""Steps whose batch is compared with the first (until one differs, which is the second as a rule), and with targets."""


class Batches:
    def __init__(self) -> None:
        self.labels: list[tuple[int, int, int]] = []
        """Of each batch that was looked at: how many labels, how many of the most frequent class, which class."""
        self.label_place: CodeLine | None = None
        self.seen = 0
        self.sizes: dict[int, int] = {}
        self.inputs: list[dict[str, Any]] = []
        self.prints: dict[str, list[int]] = {}
        """Of each root: how many training calls were compared, how many differed from the first."""
        self.call_line: dict[str, Any] | None = None
        self._first_print: dict[str, int] = {}
        self._last: weakref.ref[Tensor] | None = None
        self.values: dict[str, Any] = {"batches": 0, "elements": 0, "constant": True, "value": None, "line": None}
        """Of float targets that a loader gave: whether they were all one value."""
        self.copies = [0, 0]
        """How often whole-number targets were held against the inputs of the root, and how often they were the same."""
        self.target_line: dict[str, Any] | None = None
        """Where targets were made that are the inputs."""
        self._whole: list[weakref.ref[Tensor]] = []
        self.shared: dict[str, Any] | None = None
        """Where all samples of a batch are equal: the one buffer that the data set gives for all."""
        self.shifts: dict[str, Any] = {"looked_at": 0, "same": 0}
        """How often targets were held against the inputs of the last root, and how often they were those, shifted by one."""
        self._held: tuple[str, list[tuple[torch.Size, Tensor]]] = ("", [])

    def _copied(self, target: Tensor, frame: FrameType) -> None:
        """Whether these are the very numbers that the model was given; a model may be given its targets as well."""
        given = [held for ref in self._whole if (held := ref()) is not None and held.numel() == target.numel()]
        others = [held for held in given if not shares(held, target)]
        twice = len(given) - len(others) > 1
        if others or twice:
            late = target.device.type != "cpu"
            line = target_line(target, frame) if late and self.target_line is None else None

            def told(flat: Tensor, *kept: Tensor) -> None:
                same = twice or any(bool((held == flat).all()) for held in kept)
                self.copies[0] += 1
                self.copies[1] += same
                if same and self.target_line is None:
                    self.target_line = line if late else target_line(target, frame)

            READING.later([held.detach().reshape(-1) for held in (target, *others)], told)

    def _shifted(self, target: Tensor) -> None:
        """Whether these are what the model was given, from the second position on."""
        root, given = self._held
        alike = [(shape, rows) for shape, rows in given if rows.dtype == target.dtype]
        if self.shifts["looked_at"] >= SHIFTS or not alike:
            return
        self.shifts["looked_at"] += 1

        def told(target: Tensor, *given: Tensor) -> None:
            for (shape, _), rows in zip(alike, given, strict=True):
                if _ahead(shape, rows, target):
                    self.shifts["same"] += 1
                    self.shifts |= {"root": root, "shape": list(shape), "length": shape[1]}
                    return

        READING.later([target.detach(), *(rows for _, rows in alike)], told)

    def value_targets(self, target: Any) -> None:
        """Float targets of a loss that is trained on; those that are a part of the loader's batch as it came."""
        if (self._last is not None and self._last() is target) or not _holds_values(target):
            return
        seen, batch = self.values, batches.latest
        if target.is_floating_point() and not target.requires_grad:
            self._shifted(target)
        if batch is None or not seen["constant"] or seen["batches"] >= MOST_BATCHES:
            return
        self._last = Ref(target)
        if not target.is_floating_point() or target.requires_grad or not target.numel():
            return
        part = batch.part_of(target)
        if not part or (READING.seldom(target) and seen["batches"] % 16):  # none, or the inputs themselves
            return
        size = target.numel()

        def told(least: Tensor, most: Tensor) -> None:
            value = float(least)
            if value != float(most) or seen["value"] not in (None, value):
                seen["constant"] = False
                return
            if seen["line"] is None:
                seen["line"] = batch.part_line(part)
            seen["value"] = value
            seen["batches"] += 1
            seen["elements"] += size

        READING.later(target.detach().aminmax(), told)

    def targets(self, target: Any, frame: FrameType) -> None:
        """Integer targets of a loss that is trained on; `frame` calls it."""
        if self._last is not None and self._last() is target:
            return  # the same call, seen through a function mode
        if not _holds_values(target):
            return
        self._last = Ref(target)
        self.seen += 1
        often = FEW if target.device.type != "cpu" else OFTEN
        if (self.seen > often and self.seen % 16) or len(self.labels) >= MOST_BATCHES or target.is_floating_point():
            return
        self._shifted(target)
        if target.ndim != 1:
            return
        flat = target.detach().reshape(-1)[:MOST_ELEMENTS]
        if flat.numel() == 0:
            return
        if 8 <= target.numel() <= MOST_ELEMENTS:
            self._copied(target, frame)
        if self.label_place is None:
            self.label_place = user_place(frame)
        READING.later([flat], self._labels)

    def _labels(self, flat: Tensor) -> None:
        classes, counts = torch.unique(flat, return_counts=True)
        top = int(counts.argmax())
        self.labels.append((int(flat.numel()), int(counts[top]), int(classes[top])))

    def given(self, root: str, args: tuple[Any, ...], kwargs: dict[str, Any], step: int) -> None:
        """A root is called in training."""
        tensors = dense_in((args, kwargs))[:4]
        self._whole = [Ref(t) for t in tensors if t.dtype is torch.int64 and t.ndim >= 2]
        seldom = step % 8 and any(READING.seldom(t) for t in tensors)
        if self.shifts["looked_at"] < SHIFTS and step < COMPARED and not seldom:
            self._held = root, [(t.shape, _first_rows(t)) for t in tensors if _sequence(t)]
        else:
            self._held = "", []
        for tensor in tensors[:1]:
            if tensor.ndim:
                size = int(tensor.shape[0])
                if size in self.sizes or len(self.sizes) < 64:
                    self.sizes[size] = self.sizes.get(size, 0) + 1
        if step < COMPARED and not seldom:
            self._compare(root, tensors)
        if len(self.inputs) < 12 and (step < 4 or step & (step - 1) == 0):
            for k, tensor in enumerate(tensors):
                if tensor.is_floating_point() and tensor.ndim >= 2 and tensor.grad_fn is None:
                    self._input(root, k, tensor.detach(), step)

    def _compare(self, root: str, tensors: list[Tensor]) -> None:
        """Whether the model is fed the same as in its first call. Every value counts: images often share their borders."""
        tally = self.prints.setdefault(root, [0, 0])
        if tally[1] or not tensors or any(t.is_sparse for t in tensors):
            return
        if self.call_line is None:
            self.call_line = line_of(user_place(sys._getframe(3)))
        shapes = tuple(tensor.shape for tensor in tensors)
        if any(tensor.device.type != "cpu" for tensor in tensors):
            READING.later(
                [part for tensor in tensors for part in sums(tensor)],
                lambda *parts: self._print(root, hash((shapes, crc(parts)))),
            )
        else:
            self._print(root, hash((shapes, tuple(memory_sum(tensor) for tensor in tensors))))

    def _print(self, root: str, found: int) -> None:
        tally = self.prints[root]
        tally[0] += 1
        if self._first_print.setdefault(root, found) != found:
            tally[1] += 1

    def _input(self, root: str, k: int, tensor: Tensor, step: int) -> None:
        if not tensor.numel():
            return
        rows = tensor[: max(2, MOST_ELEMENTS // tensor[0].numel())].flatten(1)[:, :MOST_ELEMENTS]
        batch, shape = batches.latest, tensor.shape
        READING.later([rows], lambda rows: self._look(root, k, rows, shape, step, batch))

    def _look(self, root: str, k: int, rows: Tensor, shape: torch.Size, step: int, batch: batches.Batch | None) -> None:
        values = rows.float()
        same = bool(rows.shape[0] > 1 and (rows == rows[:1]).all())
        whole = rows.shape[1] == prod(shape[1:])
        if same and whole and self.shared is None and batch is not None:
            self.shared = shared(batch.dataset(), rows[0].reshape(shape[1:]))
        self.inputs.append(
            {
                "root": root,
                "index": k,
                "step": step,
                "shape": list(shape),
                "absmax": float(values.abs().max()),
                "mean": float(values.mean()),
                "std": float(values.std(correction=0)),
                "same_rows": same,
                "sum": float(values.double().sum()),
                "features": _features(values) if len(shape) == 2 else None,
            }
        )

    def facts(self) -> dict[str, Any]:
        return {
            "labels": self.labels,
            "label_line": line_of(self.label_place),
            "target_line": self.target_line,
            "value_targets": self.values,
            "copies": {"looked_at": self.copies[0], "same": self.copies[1]},
            "shifted": self.shifts,
            "sizes": self.sizes,
            "inputs": self.inputs,
            "shared": self.shared,
            "repeats": {root: {"looked_at": n, "differ": d} for root, (n, d) in list(self.prints.items())[:16]},
            "call_line": self.call_line,
            "taken_again": self._taken_again(),
        }

    def _taken_again(self) -> dict[str, Any] | None:
        """The line that takes the same batch in every step, where all that were compared were the same."""
        line = self.call_line
        if line is None or not any(n >= 10 and not differ for n, differ in self.prints.values()):
            return None
        found = same_each_time(line["file"], line["line"])
        return line_at(line["file"], found) if found else None


def _sequence(tensor: Tensor) -> bool:
    """May hold a position for each of its second dimension."""
    plain = is_dense(tensor) and not tensor.is_complex()
    return plain and 2 <= tensor.ndim <= 3 and len(tensor) > 0 and tensor.shape[1] >= 4


def _holds_values(target: Any) -> TypeGuard[Tensor]:
    """The compiler calls losses, too, with tensors that have none."""
    return isinstance(target, Tensor) and is_dense(target) and not capturing()


def _first_rows(tensor: Tensor) -> Tensor:
    """A copy: what a model is given may be gone when its loss is computed."""
    return tensor.detach()[: max(1, MOST_ELEMENTS // max(1, tensor[0].numel()))].clone()


def _ahead(shape: torch.Size, rows: Tensor, target: Tensor) -> bool:
    """Whether targets are one ahead of what was given along the second dimension (rows of a batch may well follow each
    other); -100 is left out of the loss."""
    length = shape[1]
    for kept in (length, length - 1):
        layout = [shape[0], kept, *shape[2:]]
        if prod(layout) != target.numel():
            continue
        wanted = target.reshape(layout)[: len(rows), : length - 1]
        known = wanted != -100
        ahead, same = (wanted == rows[:, 1:]) | ~known, (wanted == rows[:, :-1]) | ~known
        if ahead.all() and known.sum() * 2 > known.numel() and not same.all():
            return True
    return False


def _features(values: Tensor) -> dict[str, float] | None:
    """The column with the largest values, and what is usual for the others; and how far columns spread."""
    if not 2 <= values.shape[1] <= 1024 or values.shape[0] < 4:
        return None
    sizes, spreads = values.abs().amax(0), values.std(0, correction=0)
    largest = int(sizes.argmax())
    return {
        "index": largest,
        "absmax": float(sizes[largest]),
        "usual": float(sizes.median()),
        "widest": int(spreads.argmax()),
        "spread": float(spreads.max()),
        "usual_spread": float(spreads.median()),
    }


def loader_facts(loader: Any) -> dict[str, Any]:
    dataset = loader.dataset
    try:
        length: int | None = len(dataset)
    except TypeError:
        length = None
    parts, sampler_line = dealt(loader)
    return {
        "made": KNOWN.made.line(loader),
        "batch_size": loader.batch_size,
        "sampler": type(loader.sampler).__name__,
        "weighted": weighted(loader),
        "epochs": [] if is_distributed(loader.sampler) else None,
        "shuffled": bool(getattr(loader.sampler, "shuffle", False)),
        "dealt_by": loader.sampler.seed if is_distributed(loader.sampler) else None,
        "own_batch_sampler": type(loader.batch_sampler).__name__ != "BatchSampler",
        "drop_last": loader.drop_last,
        "dealt": deals(loader),
        "shares": parts,
        "sampler_line": sampler_line,
        "content": _content(dataset, length) if deals(loader) else None,
        "seed": _seed(loader),
        "workers": loader.num_workers,
        "persistent": loader.persistent_workers,
        "worker_init": _worker_init(loader),
        "dataset": type(dataset).__name__,
        "length": length,
        **_share(dataset),
        "sample_line": _sample_line(dataset),
        "data_line": _data_line(loader),
        "holds": [str(t.dtype).removeprefix("torch.") for t in dataset.tensors]
        if isinstance(dataset, TensorDataset)
        else None,
        "generators": _generators(dataset) if loader.num_workers else [],
    }


def _content(dataset: Any, length: int | None) -> int | None:
    kept = getattr(dataset, "__dict__", None) or {}
    parts = kept.get("tensors") if isinstance(dataset, TensorDataset) else kept.values()
    tables = [
        torch.from_numpy(part) if isinstance(part, np.ndarray) and part.dtype.kind in "fiub" else part
        for part in parts or ()
        if isinstance(part, Tensor | np.ndarray) and part.shape[:1] == (length,)
    ]
    found = [memory_sum(table) for table in tables if isinstance(table, Tensor) and table.nbytes <= MOST_CONTENT]
    return hash(tuple(found)) if found and len(found) == len(tables) and None not in found else None


def _share(dataset: Any) -> dict[str, Any]:
    if not isinstance(dataset, Subset):
        return {}
    try:
        whole, indices = len(dataset.dataset), dataset.indices
        kept = [int(index) for index in indices] if len(indices) <= MOST_SHARED else []
    except (TypeError, ValueError):
        return {}
    return {"share_of": whole, "share": kept}


def _seed(loader: Any) -> int | None:
    """Of the generator that shuffles, where it has one of its own."""
    generator = loader.generator or getattr(loader.sampler, "generator", None)
    return generator.initial_seed() if generator is not None else None


def _data_line(loader: Any) -> dict[str, Any] | None:
    """Where the variable that the loader was given got its value."""
    place = KNOWN.made.place(loader)
    if place is None:
        return None
    path, number = place[0].co_filename, place[1]
    name = queries.first_argument(path, number, type(loader).__name__)
    found = queries.assignment(path, name, before=number) if name else None
    return line_at(path, found) if found else None


def _sample_line(dataset: Any) -> dict[str, Any] | None:
    """The first statement of the user's `__getitem__`."""
    place = sample_place(dataset)
    if place is None:
        return None
    path, number = place
    return line_at(path, queries.first_statement(path, number) or number)


def _worker_init(loader: DataLoader[Any]) -> dict[str, Any] | None:
    """Whether it seeds something, and whether it tells workers apart."""
    function = loader.worker_init_fn
    if function is None:
        return None
    code = getattr(function, "__code__", None)
    if code is None:
        return {"seeds": False, "uses_worker": True, "line": None}
    names = set(code.co_names) | set(code.co_freevars)
    argument = code.co_varnames[0] if code.co_argcount else None
    uses = any(i.opname.startswith("LOAD_FAST") and _mentions(i.argval, argument) for i in dis.get_instructions(code))
    return {
        "seeds": bool(names & {"seed", "manual_seed", "RandomState", "default_rng"}),
        "uses_worker": uses or bool(names & {"initial_seed", "get_worker_info", "getpid"}),
        "line": line_at(code.co_filename, code.co_firstlineno),
    }


def _mentions(value: Any, name: str | None) -> bool:
    return value == name or (isinstance(value, tuple) and name in value)


def _generators(dataset: Any) -> list[dict[str, Any]]:
    """Random generators that are copied into each worker with the dataset, and that its code uses."""
    found: list[dict[str, Any]] = []
    _search(dataset, found, 3, set())
    return found[:8]


def _search(holder: Any, found: list[dict[str, Any]], depth: int, seen: set[int]) -> None:
    if depth == 0 or id(holder) in seen or isinstance(holder, Tensor | str | bytes | int | float):
        return
    seen.add(id(holder))
    if isinstance(holder, list | tuple):
        for item in holder[:32]:
            _search(item, found, depth - 1, seen)
        return
    kind = type(holder)
    codes = [
        f.__code__
        for name, f in inspect.getmembers(kind, inspect.isfunction)
        if name != "__init__" and is_user(f.__code__)
    ]
    used = {name for code in codes for name in code.co_names}
    for name, value in list(getattr(holder, "__dict__", {}).items()):
        if _is_generator(value):
            if name in used:
                found.append(
                    {"holder": kind.__name__, "name": name, "type": type(value).__name__, "line": _set_at(kind, name)}
                )
        else:
            _search(value, found, depth - 1, seen)
    module = sys.modules.get(kind.__module__)
    for name in used:
        value = getattr(module, name, None)
        if _is_generator(value):
            path = codes[0].co_filename
            number = queries.assignment(path, name)
            found.append(
                {
                    "holder": kind.__module__,
                    "name": name,
                    "type": type(value).__name__,
                    "line": line_at(path, number) if number else None,
                }
            )


def _is_generator(value: Any) -> bool:
    if isinstance(value, torch.Generator | random.Random):
        return True
    kind = type(value)
    return kind.__module__.startswith("numpy.random") and kind.__name__ in ("RandomState", "Generator")


def _set_at(kind: type, name: str) -> dict[str, Any] | None:
    found = class_of(kind)
    if found is None:
        return None
    path, owner = found
    number = queries.attribute_assignment(path, name, owner.lineno, owner.end_lineno or owner.lineno)
    return line_at(path, number) if number else None
