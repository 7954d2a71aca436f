"""Checkpoints of `torch.save`: a zip of one pickle and of the storages, uncompressed, which are mapped where they lie."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tensonde.errors import RecordingError
from tensonde.store.damage import open_file
from tensonde.store.dtypes import SIZES
from tensonde.store.sources.entry import Entry
from tensonde.store.sources.source import TensorSource
from tensonde.store.sources.unpickle import LazyTensor, read_pickle
from tensonde.store.sources.zipped import LARGE, honest, stored_at

Array = np.ndarray[Any, Any]
PICKLE_LIMIT = 1 << 30
_DEPTH = 12
_FEW, _SHARED = 10_000, 4
"""The most places looked at: this many, plus this many per byte of the pickle. A plain pickle has less than one place per byte."""


class TorchFile(TensorSource):
    kind, format = "checkpoint", "torch"

    def _entries(self) -> list[Entry]:
        content, places = self._open()
        self._views: dict[int, tuple[LazyTensor, int]] = {}
        found: list[Entry] = []
        for name, tensor in self._tensors(content, ""):
            size = SIZES.get(tensor.dtype)
            begin, available = places.get(tensor.storage.member, (0, -1))
            if size is None or available < 0:
                self.problems.append(f"{name} of {self.path} has no bytes in the file; it is left out")
                continue
            if min((tensor.offset, *tensor.shape, *tensor.stride)) < 0 or len(tensor.shape) != len(tensor.stride):
                raise RecordingError(
                    f"{self.path} is damaged: {name} has the shape {tensor.shape} and strides {tensor.stride}."
                )
            offset, nbytes = tensor.offset * size, math.prod(tensor.shape) * size
            if nbytes and _last(tensor) * size > available:
                raise RecordingError(
                    f"{self.path} is damaged: {name} needs {_last(tensor) * size} bytes of a storage of {available}."
                )
            order = len(found)
            plain = tensor.contiguous
            if not plain and nbytes > max(LARGE, 4 * available):
                self.problems.append(f"{name} of {self.path} is an expanded view of {nbytes} bytes; it is left out")
                continue
            if not plain:
                self._views[order] = (tensor, begin)
            found.append(
                Entry(
                    f"{name}:value",
                    tensor.dtype,
                    tensor.shape,
                    nbytes,
                    self.path if plain else None,
                    begin + offset,
                    phase="optimizer",
                    order=order,
                    kind="parameter",
                )
            )
        return found

    def _open(self) -> tuple[Any, dict[str, tuple[int, int]]]:
        """The unpickled structure, and for each storage where it begins and how many bytes it has."""
        with open_file(self.path) as file, zipfile.ZipFile(file) as archive:
            members = honest(archive, file)
            pickles = [name for name in members if name.rpartition("/")[2] == "data.pkl"]
            if not pickles:
                raise RecordingError(f"{self.path} is a zip file without data.pkl, so no checkpoint of torch.")
            root = pickles[0].rpartition("data.pkl")[0]
            if f"{root}constants.pkl" in members and f"{root}code" in {name.rpartition("/")[0] for name in members}:
                raise RecordingError(f"{self.path} is a TorchScript program, not a checkpoint; save its state_dict().")
            if any(
                member.compress_type != zipfile.ZIP_STORED
                for name, member in members.items()
                if name == pickles[0] or name.startswith(f"{root}data/")
            ):
                raise RecordingError(f"{self.path} is compressed, which torch.save never does.")
            if f"{root}byteorder" in members and archive.read(f"{root}byteorder") != b"little":
                raise RecordingError(f"{self.path} was saved on a big-endian machine, which is not supported.")
            if members[pickles[0]].file_size > PICKLE_LIMIT:
                raise RecordingError(f"{self.path}: its data.pkl is larger than a gigabyte.")
            pickled = archive.read(pickles[0])
            content, left_out = read_pickle(io.BytesIO(pickled), str(self.path))
            places = {
                name.removeprefix(f"{root}data/"): (stored_at(file, member), member.file_size)
                for name, member in members.items()
                if name.startswith(f"{root}data/")
            }
        self._budget = _FEW + _SHARED * len(pickled)
        if left_out:
            self.problems.append(f"left out, because it is not data: {', '.join(sorted(left_out))}")
        return content, places

    def _tensors(self, value: Any, path: str, depth: int = _DEPTH) -> Iterator[tuple[str, LazyTensor]]:
        """Every tensor with the way to it. Raises ValueError where a small file leads to more places than it could name one by one: a
        few lists that hold each other twice make millions."""
        self._budget -= 1 + len(path) // 256
        if self._budget < 0:
            raise ValueError("its objects hold each other over and over, as in no checkpoint that a training saves")
        if isinstance(value, LazyTensor):
            yield path or "tensor", value
        elif depth and isinstance(value, Mapping):
            for key, item in value.items():
                yield from self._tensors(item, f"{path}.{key}" if path else str(key), depth - 1)
        elif depth and isinstance(value, list | tuple):
            for k, item in enumerate(value):
                yield from self._tensors(item, f"{path}.{k}" if path else str(k), depth - 1)

    def _made(self, entry: Entry) -> Array:
        """A view with strides of its own, such as a transposed weight."""
        tensor, begin = self._views[entry.order]
        size = SIZES[tensor.dtype]
        storage = np.fromfile(self.path, np.uint8, count=_last(tensor) * size, offset=begin)
        if len(storage) < _last(tensor) * size:
            raise RecordingError(f"{self.path} is truncated: {entry.name} is not whole.")
        items = storage.view(f"V{size}")[tensor.offset :]
        view = np.lib.stride_tricks.as_strided(items, tensor.shape, [stride * size for stride in tensor.stride])
        return np.ascontiguousarray(view).reshape(-1).view(np.uint8)


def _last(tensor: LazyTensor) -> int:
    """Elements of the storage up to the last that the view reaches."""
    if 0 in tensor.shape:
        return tensor.offset
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride, strict=True))
    return tensor.offset + reach + 1


def is_legacy(start: bytes) -> bool:
    """The format of torch before 1.6: a pickle of the magic number comes first."""
    return start[:1] == b"\x80" and b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19" in start[:24]


def refuse_legacy(path: Path) -> RecordingError:
    return RecordingError(
        f"{path} is a checkpoint in torch's old format (before 1.6), or a bare pickle; load it where you trust it and "
        "save it again with torch.save, or as safetensors."
    )
