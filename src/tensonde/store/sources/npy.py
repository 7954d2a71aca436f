"""numpy files: `.npy`, `.npz`, and folders of `.npy`."""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npformat

from tensonde.errors import RecordingError
from tensonde.store.damage import open_file, read_file, reading
from tensonde.store.dtypes import PLAIN, little, name_of
from tensonde.store.sources.entry import Entry
from tensonde.store.sources.notes import INDEX, Notes, in_order, noted, read_note, read_notes
from tensonde.store.sources.source import TensorSource
from tensonde.store.sources.zipped import LARGE, honest, stored_at

Array = np.ndarray[Any, Any]
MAGIC = b"\x93NUMPY"


def header_of(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, whether in Fortran order, dtype, and where the bytes begin. Whatever damage makes it raise is for `reading`."""
    version = npformat.read_magic(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the header is Python text, and Python's parser warns about odd ones
        if version == (1, 0):
            shape, fortran, kind = npformat.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, fortran, kind = npformat.read_array_header_2_0(file)
        else:
            raise ValueError(f"version {version} of the npy format is unknown")
    if kind.hasobject:
        raise ValueError("it holds Python objects, which are never unpickled")
    sizes = tuple(int(n) for n in shape)
    if min(sizes, default=0) < 0:
        raise ValueError(f"its shape is {list(sizes)}")
    return sizes, bool(fortran), kind, file.tell()


def entry_of(path: Path, site: str, *, dtype: str | None = None, **facts: Any) -> Entry:
    """The entry of one `.npy` file; `dtype` names what numpy calls bare bytes. Raises RecordingError."""
    with reading(path, "a npy file"), open_file(path) as file:
        shape, fortran, kind, offset = header_of(file)
        size = file.seek(0, 2)
    nbytes = math.prod(shape) * kind.itemsize
    if size < offset + nbytes:
        raise RecordingError(f"{path} is truncated: it should have {offset + nbytes} bytes, and it has {size}.")
    name = given_name(kind, dtype)
    plain = (name in PLAIN and (kind.byteorder != ">" or kind.itemsize == 1)) or kind.kind == "V"
    file_or_none = path if plain and not (fortran and len(shape) > 1) else None
    return Entry(site, name, shape, nbytes, file_or_none, offset, **facts)


def given_name(kind: np.dtype[Any], told: str | None) -> str:
    """numpy writes bfloat16 and float8 as bare bytes (`V2`, `V1`): what else is known of them decides."""
    if kind.kind != "V":
        return name_of(kind)
    return told or {2: "bfloat16"}.get(kind.itemsize, name_of(kind))


def load(path: Path) -> Array:
    """The bytes of a `.npy` file that is not plain, in C order and little endian."""
    with reading(path, "a npy file"), open_file(path) as file:
        return _flat(npformat.read_array(file, allow_pickle=False))


def _flat(array: Array) -> Array:
    return little(array).reshape(-1).view(np.uint8)


class NpyFiles(TensorSource):
    """A folder of `.npy` files, or one: the name of a tensor is its path in the folder, without the ending."""

    kind, format = "checkpoint", "npy"

    def _entries(self) -> list[Entry]:
        self._paths: dict[tuple[int, int, str], Path] = {}
        alone = self.path.is_file()
        notes = {} if alone else read_notes(self._notes())
        found: list[Entry] = []
        names: set[str] = set()
        for path in [self.path] if alone else sorted(path for path in self.path.rglob("*.npy") if path.is_file()):
            name = path.stem if alone else path.relative_to(self.path).with_suffix("").as_posix()
            told = notes.get(name, {}).get("dtype")
            try:
                entry = entry_of(
                    path, f"{name.replace('/', '.')}:value", dtype=told, kind="parameter", phase="optimizer"
                )
            except RecordingError as problem:
                if alone:
                    raise
                self.problems.append(str(problem))
                continue
            entry = noted(notes, name, entry)
            names.add(name)
            self._paths[entry.rank, entry.step, entry.key] = path
            found.append(entry)
        missing = sorted(set(notes) - names)
        if missing:
            self.problems.append(f"missing or unreadable in {self.path}: {', '.join(missing[:20])}")
        return in_order(found)

    def _notes(self) -> bytes | None:
        try:
            return read_file(self.path / INDEX)
        except OSError:
            return None

    def _made(self, entry: Entry) -> Array:
        return load(self._paths[entry.rank, entry.step, entry.key])


def notes_of(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]) -> Notes:
    """From the comments of its members; files that older versions wrote have them in a member of their own."""
    if INDEX in members:
        return read_notes(archive.read(members[INDEX]))
    found = {member.filename.removesuffix(".npy"): read_note(member.comment) for member in members.values()}
    return {name: note for name, note in found.items() if note is not None}


class NpzFile(TensorSource):
    kind, format = "checkpoint", "npz"

    def _entries(self) -> list[Entry]:
        self._members: dict[tuple[int, int, str], str] = {}
        found: list[Entry] = []
        with open_file(self.path) as file, zipfile.ZipFile(file) as archive:
            members = honest(archive, file)
            notes = notes_of(archive, members)
            for member in members.values():
                if not member.filename.endswith(".npy"):
                    continue
                name = member.filename.removesuffix(".npy")
                with archive.open(member) as opened:
                    start = io.BytesIO(opened.read(1 << 16))
                shape, fortran, kind, offset = header_of(start)
                nbytes = math.prod(shape) * kind.itemsize
                if offset + nbytes > member.file_size:
                    raise ValueError(f"{name} has {member.file_size - offset} bytes, which are not {kind}{list(shape)}")
                dtype = given_name(kind, notes.get(name, {}).get("dtype"))
                entry = noted(
                    notes, name, Entry(f"{name}:value", dtype, shape, nbytes, kind="parameter", phase="optimizer")
                )
                plain = member.compress_type == zipfile.ZIP_STORED and not fortran and kind.byteorder != ">"
                if plain:
                    entry = replace(entry, file=self.path, offset=stored_at(file, member) + offset)
                elif nbytes > max(LARGE, 4 * member.compress_size):
                    self.problems.append(
                        f"{name} of {self.path} unpacks to {nbytes} bytes, more than is held at once; it is left out"
                    )
                    continue
                self._members[entry.rank, entry.step, entry.key] = member.filename
                found.append(entry)
        return in_order(found)

    def _made(self, entry: Entry) -> Array:
        with (
            open_file(self.path) as file,
            zipfile.ZipFile(file) as archive,
            archive.open(self._members[entry.rank, entry.step, entry.key]) as member,
        ):
            return _flat(npformat.read_array(member, allow_pickle=False))
