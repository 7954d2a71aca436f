"""numpy files: `.npy`, `.npz`, and folders of `.npy`."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npformat

from tensonde.errors import RecordingError
from tensonde.store.dtypes import PLAIN, little, name_of
from tensonde.store.sources.entry import Entry
from tensonde.store.sources.notes import INDEX, in_order, noted, read_notes
from tensonde.store.sources.source import TensorSource
from tensonde.store.sources.zipped import stored_at

Array = np.ndarray[Any, Any]
MAGIC = b"\x93NUMPY"


def header_of(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, whether in Fortran order, dtype, and where the bytes begin. Raises ValueError, EOFError."""
    version = npformat.read_magic(file)
    if version == (1, 0):
        shape, fortran, kind = npformat.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran, kind = npformat.read_array_header_2_0(file)
    else:
        raise ValueError(f"version {version} of the npy format is unknown")
    if kind.hasobject:
        raise ValueError("it holds Python objects, which are never unpickled")
    return tuple(int(n) for n in shape), bool(fortran), kind, file.tell()


def entry_of(path: Path, site: str, *, dtype: str | None = None, **facts: Any) -> Entry:
    """The entry of one `.npy` file; `dtype` names what numpy calls bare bytes. Raises RecordingError."""
    try:
        with open(path, "rb") as file:
            shape, fortran, kind, offset = header_of(file)
            size = file.seek(0, 2)
    except (OSError, ValueError, EOFError, SyntaxError) as problem:
        raise RecordingError(f"{path} cannot be read as a npy file: {problem}.") from None
    nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
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
    try:
        return little(np.load(path, allow_pickle=False)).reshape(-1).view(np.uint8)
    except (OSError, ValueError, EOFError) as problem:
        raise RecordingError(f"{path} cannot be read as a npy file: {problem}.") from None


class NpyFiles(TensorSource):
    """A folder of `.npy` files, or one: the name of a tensor is its path in the folder, without the ending."""

    kind, format = "checkpoint", "npy"

    def _entries(self) -> list[Entry]:
        self._paths: dict[tuple[int, int, str], Path] = {}
        alone = self.path.is_file()
        notes = {} if alone else read_notes(self._notes())
        found: list[Entry] = []
        for path in [self.path] if alone else sorted(self.path.rglob("*.npy")):
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
            self._paths[entry.rank, entry.step, entry.key] = path
            found.append(entry)
        missing = sorted(
            set(notes) - {path.relative_to(self.path).with_suffix("").as_posix() for path in self._paths.values()}
        )
        if missing:
            self.problems.append(f"missing or unreadable in {self.path}: {', '.join(missing[:20])}")
        return in_order(found)

    def _notes(self) -> str | None:
        try:
            return (self.path / INDEX).read_text()
        except OSError:
            return None

    def _made(self, entry: Entry) -> Array:
        return load(self._paths[entry.rank, entry.step, entry.key])


class NpzFile(TensorSource):
    kind, format = "checkpoint", "npz"

    def _entries(self) -> list[Entry]:
        self._members: dict[tuple[int, int, str], str] = {}
        found: list[Entry] = []
        try:
            with zipfile.ZipFile(self.path) as archive, open(self.path, "rb") as file:
                notes = read_notes(archive.read(INDEX) if INDEX in archive.namelist() else None)
                for member in archive.infolist():
                    if not member.filename.endswith(".npy"):
                        continue
                    name = member.filename.removesuffix(".npy")
                    with archive.open(member) as opened:
                        start = io.BytesIO(opened.read(1 << 16))
                    shape, fortran, kind, offset = header_of(start)
                    nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
                    dtype = given_name(kind, notes.get(name, {}).get("dtype"))
                    entry = noted(
                        notes, name, Entry(f"{name}:value", dtype, shape, nbytes, kind="parameter", phase="optimizer")
                    )
                    plain = member.compress_type == zipfile.ZIP_STORED and not fortran and kind.byteorder != ">"
                    if plain:
                        entry = replace(entry, file=self.path, offset=stored_at(file, member) + offset)
                    self._members[entry.rank, entry.step, entry.key] = member.filename
                    found.append(entry)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError) as problem:
            raise RecordingError(f"{self.path} cannot be read as a npz file: {problem}.") from None
        return in_order(found)

    def _made(self, entry: Entry) -> Array:
        try:
            with (
                zipfile.ZipFile(self.path) as archive,
                archive.open(self._members[entry.rank, entry.step, entry.key]) as member,
            ):
                return little(npformat.read_array(member, allow_pickle=False)).reshape(-1).view(np.uint8)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as problem:
            raise RecordingError(f"{entry.name} of {self.path} cannot be read: {problem}.") from None
