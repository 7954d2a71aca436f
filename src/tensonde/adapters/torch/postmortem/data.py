"""Loaders and data sets: what they were asked for when the program failed."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.postmortem.definition import frames
from tensonde.adapters.torch.postmortem.origin import unwrap
from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.program.classes import item_line, none_returned
from tensonde.program.frames import is_user
from tensonde.program.lines import line_at, line_of

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


def loaders(failure: Failure) -> list[dict[str, Any]]:
    """Every loader that the user's frames can name, those that they iterate first."""
    found: dict[int, tuple[str, Any]] = {}
    for frame in frames(failure):
        for scope in (frame.f_locals, getattr(frame.f_locals.get("self"), "__dict__", {}), frame.f_globals):
            for name, held in scope.items():
                if isinstance(held, DataLoader):
                    found.setdefault(id(held), (name, held))
    return [_loader(name, held) for name, held in found.values()]


def _loader(name: str, loader: Any) -> dict[str, Any]:
    try:
        length: int | None = len(loader.dataset)
    except Exception:
        length = None
    return {
        "name": name,
        "dataset": type(unwrap(loader.dataset)).__name__,
        "length": length,
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "workers": loader.num_workers,
        "line": line_of(KNOWN.made.anywhere(loader)),
    }


def uneven_items(failure: Failure) -> dict[str, Any] | None:
    """What default_collate was given: the shapes that differ, the line that makes the items, and the one that makes the
    loader, where there is one loader that stacks them."""
    batch = next(
        (place.frame.f_locals["batch"] for place in failure.places if place.function == "default_collate"), None
    )
    shapes: list[Any] = []
    if isinstance(batch, list) and batch:
        parts = len(batch[0]) if isinstance(batch[0], tuple | list) else 1
        for k in range(parts):
            column = [item[k] if isinstance(item, tuple | list) else item for item in batch]
            seen = [list(item.shape) for item in column if isinstance(item, Tensor)]
            if len({tuple(shape) for shape in seen}) > 1:
                shapes = [k, seen[:8]]
                break
    fact: dict[str, Any] = {"part": shapes[0], "shapes": shapes[1]} if shapes else {}
    data = next((place.frame.f_locals.get("self") for place in failure.places if place.function == "fetch"), None)
    given = getattr(data, "dataset", None)
    held = unwrap(given)
    if held is not None:
        fact["dataset"] = type(held).__name__
        fact["line"] = item_line(type(held), shapes[0] if shapes else None, Dataset)
        stacking = [
            KNOWN.made.anywhere(loader)
            for loader in KNOWN.made
            if getattr(loader, "dataset", None) is given and loader.collate_fn is default_collate
        ]
        fact["loader"] = line_of(stacking[0]) if len(set(stacking)) == 1 else None
    return fact


def missing_item(failure: Failure) -> dict[str, Any] | None:
    """An item of the batch that is None, and the line of the data set that returns it."""
    batch = next(
        (place.frame.f_locals["batch"] for place in failure.places if place.function == "default_collate"), None
    )
    fetching = next((place.frame.f_locals for place in failure.places if place.function == "fetch"), {})
    held = unwrap(getattr(fetching.get("self"), "dataset", None))
    if not isinstance(batch, list | tuple) or held is None:
        return None
    where = next((k for k, item in enumerate(batch) if item is None), None)
    if where is None:
        return None
    asked = fetching.get("possibly_batched_index")
    return {
        "dataset": type(held).__name__,
        "index": asked[where] if isinstance(asked, list) and isinstance(asked[where], int) else None,
        "line": none_returned(type(held)),
    }


def worker_failure(failure: Failure) -> dict[str, Any] | None:
    """The traceback that a worker process sent: its innermost line of the user's, and the exception itself."""
    lines = failure.message.strip().splitlines()
    mine = []
    for found in _FRAME.finditer(failure.message):
        code = compile("", found["file"], "exec")
        if is_user(code):
            mine.append((found["file"], int(found["line"]), found["function"]))
    what = re.search(r"Caught (\w+) in", failure.message)
    if not mine:
        return {"type": what[1] if what else None, "message": lines[-1] if lines else ""}
    path, line, function = mine[-1]
    return {
        "type": what[1] if what else None,
        "message": lines[-1],
        "function": function,
        "line": line_at(path, line),
    }


def worker_files(failure: Failure) -> list[str]:
    """The user's files in the traceback that a worker process sent."""
    files = dict.fromkeys(found["file"] for found in _FRAME.finditer(failure.message))
    return [file for file in files if is_user(compile("", file, "exec"))]


def dataset_failure(failure: Failure) -> dict[str, Any] | None:
    """Which item of the data set was being made."""
    for place in failure.places:
        if place.function == "fetch" and "torch/utils/data" in place.path:
            held = place.frame.f_locals
            fact: dict[str, Any] = {"dataset": type(unwrap(getattr(held.get("self"), "dataset", None))).__name__}
            asked = held.get("possibly_batched_index")
            for inner in failure.places:
                if inner.function == "__getitem__" and inner.is_user:
                    for name in inner.frame.f_code.co_varnames[1:2]:
                        fact["index"] = repr(inner.frame.f_locals.get(name))[:60]
            if "index" not in fact and isinstance(asked, list):
                fact["batch"] = [int(k) for k in asked[:64] if isinstance(k, int)]
            return fact
    return None
