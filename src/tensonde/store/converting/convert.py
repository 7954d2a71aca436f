"""One conversion: what of the source, into which format, and nothing half done left behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tensonde.errors import UsageError
from tensonde.store.converting.targets import WRITERS
from tensonde.store.dtypes import PLAIN, SIZES, numbers
from tensonde.store.format import TEMPORARY
from tensonde.store.sources import Entry, TensorSource

SUFFIXES = {".npz": "npz", ".safetensors": "safetensors", ".parquet": "parquet"}


def format_of(target: Path, given: str | None) -> str:
    """By the ending, where it is not said; a folder otherwise, of `.npy` files."""
    if given is not None:
        return given
    if target.suffix in SUFFIXES:
        return SUFFIXES[target.suffix]
    if target.suffix in (".npy", ".pt", ".pth", ".ckpt", ".bin", ".json"):
        raise UsageError(
            f"{target} cannot be written: give a name that ends in {', '.join(SUFFIXES)}, or a folder for .npy files."
        )
    return "npy"


def convert(
    source: TensorSource,
    entries: list[Entry],
    target: Path,
    form: str,
    *,
    widen: bool = False,
    progress: Callable[[int], None] = lambda size: None,
) -> int:
    """Write `entries` to `target`, which must not exist. How many bytes the tensors have. `widen`: bfloat16 and float8 as float32.

    Raises UsageError, also when the disk is full, and RecordingError; `target` is then not there, and the source untouched.
    """
    if os.path.lexists(target):
        raise UsageError(f"{target} is already there; remove it first, or choose another name.")
    by_order = {(entry.rank, entry.order): entry for entry in entries}
    wanted = [_wide(entry) if widen else entry for entry in entries]

    def pieces(entry: Entry) -> Iterator[np.ndarray[Any, Any]]:
        original = by_order[entry.rank, entry.order]
        for piece in source.pieces(original):
            progress(len(piece))
            yield numbers(piece, original.dtype).view(np.uint8) if entry.dtype != original.dtype else piece

    draft = target.with_name(f"{target.name}.{os.getpid()}{TEMPORARY}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[form](draft, wanted, pieces)
        os.rename(draft, target)
    except OSError as problem:
        _remove(draft)
        raise UsageError(
            f"{target} could not be written: {problem.strerror or problem}; nothing of it was kept, and {source.path} is as it was."
        ) from None
    except BaseException:
        _remove(draft)
        raise
    return sum(entry.nbytes for entry in wanted)


def _wide(entry: Entry) -> Entry:
    if entry.dtype in PLAIN or entry.dtype not in SIZES:
        return entry
    return replace(entry, dtype="float32", nbytes=entry.nbytes // SIZES[entry.dtype] * 4)


def _remove(draft: Path) -> None:
    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
    else:
        draft.unlink(missing_ok=True)
