"""Pickles of torch, read without torch and without running anything that stands in them.

Of all that a pickle may name, only what is listed here becomes something: dictionaries, and descriptions of tensors.
Objects of a few well-known kinds that training scripts put beside their weights become `Opaque`, which does nothing.
Everything else is refused by name. Nothing is ever imported because a file says so.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any, NamedTuple

from tensonde.errors import RecordingError


class Storage(NamedTuple):
    """The memory that tensors are views of: the name of its member in the archive, and its dtype's name."""

    member: str
    dtype: str


class LazyTensor(NamedTuple):
    """A view of a storage, in elements. A tuple, like `Storage`: a pickle can give objects a state, but not change these."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    @property
    def contiguous(self) -> bool:
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size != 1 and stride != expected:
                return 0 in self.shape
            expected *= size
        return True


class Opaque:
    """Something that is no tensor and is not looked into."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, item: Any) -> None:
        pass

    def extend(self, items: Any) -> None:
        pass

    def add(self, item: Any) -> None:
        pass


class Mapped(OrderedDict[Any, Any]):
    """A dictionary whose attributes (a state dict's `_metadata`) are left out."""

    def __setstate__(self, state: Any) -> None:
        pass


STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128",
}  # fmt: skip
DTYPES = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64",
    "bool", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
OPAQUE = (
    "numpy.", "argparse.", "pathlib.", "datetime.", "enum.", "omegaconf.", "lightning.", "lightning_fabric.", "pytorch_lightning.",
    "transformers.", "torch.optim.", "torch.serialization.", "typing.", "uuid.",
)  # fmt: skip


class DtypeName(str):
    """The name of a dtype. Without attributes, so that a pickle cannot set one."""

    __slots__ = ()


def _tensor(storage: Storage, offset: int, shape: Any, stride: Any, *rest: Any) -> LazyTensor:
    return LazyTensor(storage, int(offset), tuple(map(int, shape)), tuple(map(int, stride)), storage.dtype)


def _tensor_v3(
    storage: Storage, offset: int, shape: Any, stride: Any, grad: Any, hooks: Any, dtype: DtypeName, *_: Any
) -> LazyTensor:
    return LazyTensor(storage, int(offset), tuple(map(int, shape)), tuple(map(int, stride)), str(dtype))


def _first(value: Any, *rest: Any) -> Any:
    return value


def _from_type(rebuild: Callable[..., Any], kind: Any, args: Any, state: Any) -> Any:
    return rebuild(*args) if rebuild in _REBUILDERS else Opaque()


_REBUILDERS = (_tensor, _tensor_v3, _first)

_KNOWN: dict[str, Any] = {
    "collections.OrderedDict": Mapped,
    "collections.defaultdict": lambda *_: Mapped(),
    "collections.Counter": lambda *given: Mapped(*given[:1]),
    "builtins.set": set,
    "builtins.frozenset": frozenset,
    "builtins.complex": complex,
    "builtins.bytearray": Opaque,
    "builtins.slice": Opaque,
    "builtins.object": Opaque,
    "_codecs.encode": Opaque,
    "copyreg._reconstructor": lambda *_: Opaque(),
    "torch.Size": tuple,
    "torch.device": lambda *parts: ":".join(map(str, parts)),
    "torch.Tensor": Opaque,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch.nn.parameter.Parameter": Opaque,
    "torch.nn.parameter.Buffer": Opaque,
    "torch.storage.UntypedStorage": DtypeName("uint8"),
    "torch.storage.TypedStorage": DtypeName("uint8"),
    "torch.UntypedStorage": DtypeName("uint8"),
    **{f"torch.{name}": DtypeName(dtype) for name, dtype in STORAGES.items()},
    **{f"torch.{name}": DtypeName(name) for name in DTYPES},
}
_KNOWN |= {
    name.replace("builtins.", "__builtin__."): kind for name, kind in _KNOWN.items() if name.startswith("builtins.")
}


class Reader(pickle.Unpickler):
    def __init__(self, file: IO[bytes], where: str) -> None:
        super().__init__(file, encoding="utf-8")
        self.where = where
        self.left_out: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        known = _KNOWN.get(full)
        if known is not None:
            return known
        if full.startswith(OPAQUE):
            self.left_out.add(full)
            return Opaque
        raise RecordingError(
            f"{self.where} names {full}, which is code and not data; Tensonde never runs what a file names: "
            "save the weights alone (`torch.save(model.state_dict(), ...)`), or as safetensors."
        )

    def persistent_load(self, given: Any) -> Storage:
        tag, kind, key, *_ = given
        if tag != "storage" or not isinstance(kind, DtypeName):
            raise RecordingError(f"{self.where} refers to {str(given)[:60]!r}, which is not a storage of torch.")
        return Storage(str(key), str(kind))


def read_pickle(file: IO[bytes], where: str) -> tuple[Any, set[str]]:
    """What the pickle describes, and the names of what became opaque. Raises RecordingError."""
    reader = Reader(file, where)
    try:
        return reader.load(), reader.left_out
    except RecordingError:
        raise
    except Exception as problem:  # any bytes may stand in the file, and each opcode fails its own way
        raise RecordingError(
            f"{where} cannot be read as a torch checkpoint: {type(problem).__name__}: {problem}."
        ) from None
