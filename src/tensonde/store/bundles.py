"""A bundle: one step of a training as data, from which `tensonde replay` runs it again in another process.

A folder with `bundle.json` (what was called, in order, with references to tensors) and `state.safetensors`.
Bundles come from elsewhere, so nothing in one is trusted: no pickle, and the shape of the JSON is checked here
before anything is made of it. What may change within BUNDLE_VERSION: more keys, which readers ignore.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensonde.errors import RecordingError
from tensonde.store.documents import read_json
from tensonde.store.files import dump_json, replace_file
from tensonde.store.format import TEMPORARY
from tensonde.store.values import CODES

BUNDLE_VERSION = 1
FOLDER = "bundles"
DOCUMENT, STATE = "bundle.json", "state.safetensors"
LEAP = "the loss leaps"
TAKEN_OUT = "what a model gave without gradients is NaN"
"""The trigger of a step that was saved because it looks odd, whether or not anything is wrong with it."""

_SHAPE: dict[str, type | tuple[type, ...]] = {
    "step": int, "trigger": str, "exact": bool, "notes": list, "framework": str, "program": dict, "settings": dict,
    "roots": list, "calls": list, "losses": list, "tensors": dict, "results": dict,
}  # fmt: skip
_PROGRAM: dict[str, type | tuple[type, ...]] = {
    "script": (str, type(None)), "module": (str, type(None)), "argv": list, "files": dict,
}  # fmt: skip
_ROOT: dict[str, type | tuple[type, ...]] = {
    "name": str, "prefix": str, "class": str, "parameters": dict, "buffers": dict, "attributes": dict, "values": dict,
}  # fmt: skip
_CALL: dict[str, type | tuple[type, ...]] = {
    "args": list, "kwargs": dict, "outputs": list, "random": (str, type(None)), "grad": bool, "autocast": list,
    "buffers": list, "source": (dict, type(None)), "owner": list,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor for the file: little-endian bytes in C order, made when they are wanted, so that one at a time is held."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    content: Any
    """A function without arguments that gives the bytes."""


def write_bundle(folder: Path, document: Mapping[str, Any], tensors: Iterable[Stored]) -> int:
    """Makes the folder; `bundle.json` comes last, so that a bundle without it is none. The bytes written.

    Raises OSError, and leaves nothing half-written then.
    """
    folder.mkdir(parents=True)
    draft = folder / f"{STATE}.{os.getpid()}{TEMPORARY}"
    listed = list(tensors)
    header: dict[str, Any] = {"__metadata__": {"format": f"tensonde-bundle-{BUNDLE_VERSION}"}}
    end = 0
    for tensor in listed:
        code, size = CODES[tensor.dtype]
        pairs = tensor.dtype.startswith("complex")
        if math.prod(tensor.shape) * size != tensor.nbytes:
            raise ValueError(f"{tensor.name}: {tensor.nbytes} bytes are not {tensor.dtype}{list(tensor.shape)}")
        shape = [*tensor.shape, 2] if pairs else list(tensor.shape)
        header[tensor.name] = {"dtype": code, "shape": shape, "data_offsets": [end, end + tensor.nbytes]}
        end += tensor.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    try:
        with open(draft, "wb") as file:
            file.write(struct.pack("<Q", len(head)) + head)
            for tensor in listed:
                content = tensor.content()
                if len(content) != tensor.nbytes:
                    raise ValueError(f"{tensor.name} changed while it was written")
                file.write(content)
        os.replace(draft, folder / STATE)
        replace_file(folder / DOCUMENT, dump_json({"format": BUNDLE_VERSION, **document}, indent=1) + b"\n")
    except BaseException:
        for path in (draft, folder / STATE, folder / DOCUMENT):
            path.unlink(missing_ok=True)
        folder.rmdir()
        raise
    return 8 + len(head) + end


def read_bundle(folder: Path) -> dict[str, Any]:
    """The document, its outline checked. Raises RecordingError; the tensors are the adapter's to read."""
    path = folder / DOCUMENT
    try:
        document: dict[str, Any] = read_json(path, dict)
    except FileNotFoundError:
        raise RecordingError(f"{folder} is not a bundle: there is no {DOCUMENT} in it.") from None
    except (OSError, ValueError) as error:
        raise RecordingError(f"{path} is damaged and cannot be read: {error}.") from None
    version = document.get("format")
    if not isinstance(version, int) or version < 1:
        raise RecordingError(f"{path} is damaged: its format is {version!r}.")
    if version > BUNDLE_VERSION:
        raise RecordingError(
            f"{folder} is a bundle of format {version}, and this Tensonde reads up to {BUNDLE_VERSION}; upgrade Tensonde."
        )
    _check(path, "", document, _SHAPE)
    _check(path, "program.", document["program"], _PROGRAM)
    for kind, shape in (("roots", _ROOT), ("calls", _CALL)):
        for k, entry in enumerate(document[kind]):
            _check(path, f"{kind}[{k}].", entry, shape)
    if not (folder / STATE).is_file():
        raise RecordingError(f"{folder} is not whole: its {STATE} is missing.")
    return document


def _check(path: Path, where: str, entry: Any, shape: Mapping[str, type | tuple[type, ...]]) -> None:
    if not isinstance(entry, dict):
        raise RecordingError(f"{path} is damaged: {where.rstrip('.')} is no object.")
    for name, kind in shape.items():
        if name not in entry or not isinstance(entry[name], kind) or (kind is int and isinstance(entry[name], bool)):
            got = repr(entry[name])[:40] if name in entry else "missing"
            raise RecordingError(f"{path} is damaged: {where}{name} is {got}.")


def bundles_in(rank: Path) -> list[Path]:
    """The bundles of a rank's folder, in the order of their steps."""
    found = [path.parent for path in (rank / FOLDER).glob(f"*/{DOCUMENT}")]
    return sorted(found, key=lambda path: ([int(part) for part in _numbers(path.name)], path.name))


def _numbers(name: str) -> list[str]:
    return [part for part in name.removeprefix("step").split("-") if part.isdigit()]
