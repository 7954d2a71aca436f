"""Pickles of torch, read without torch and without running anything that stands in them.

Of all that a pickle may name, only what is listed here becomes something: dictionaries, and descriptions of tensors.
Objects of a few well-known kinds that training scripts put beside their weights become `Opaque`, which does nothing.
Everything else is refused by name. Nothing is ever imported because a file says so.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any, ClassVar, NamedTuple

from tensonde.errors import RecordingError
from tensonde.store.damage import reason


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


MOST_DIMENSIONS = 64
KEY_PARTS = 64
"""Objects in a dictionary's key that is a tuple of tuples."""


def _sizes(given: Any) -> tuple[int, ...]:
    if (
        not isinstance(given, list | tuple)
        or len(given) > MOST_DIMENSIONS
        or not all(isinstance(n, int) for n in given)
    ):
        raise ValueError("a tensor has a shape that is none")
    return tuple(int(n) for n in given)


def _tensor(storage: Storage, offset: int, shape: Any, stride: Any, *rest: Any) -> LazyTensor:
    if not isinstance(storage, Storage):
        raise ValueError("a tensor has a storage that is none")
    (begin,) = _sizes((offset,))
    return LazyTensor(storage, begin, _sizes(shape), _sizes(stride), storage.dtype)


def _tensor_v3(
    storage: Storage, offset: int, shape: Any, stride: Any, grad: Any, hooks: Any, dtype: DtypeName, *_: Any
) -> LazyTensor:
    if not isinstance(dtype, DtypeName):
        raise ValueError("a tensor has a dtype that is none")
    return _tensor(storage, offset, shape, stride)._replace(dtype=str(dtype))


def _mapping(items: Any = (), *_: Any) -> Mapped:
    """A dictionary from pairs."""
    if isinstance(items, dict):
        return Mapped(items)
    if not isinstance(items, list | tuple) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in items
    ):
        raise ValueError("a dictionary is made of what are no pairs")
    return Mapped((check_key(key), value) for key, value in items)


def check_key(key: Any) -> Any:
    """Raises ValueError for a key that no state dict has. The hash of tuples that hold each other twice takes for ever."""
    waiting, seen = [key], 0
    while waiting:
        part = waiting.pop()
        seen += 1
        if isinstance(part, tuple) and len(part) <= KEY_PARTS and seen <= KEY_PARTS:
            waiting += part
        elif not isinstance(part, str | int | float | complex | bytes | None) or seen > KEY_PARTS:
            raise ValueError("a dictionary has a key that is neither a name nor a number")
    return key


def _device(*parts: Any) -> Any:
    return ":".join(str(part) for part in parts if isinstance(part, str | int))


def _first(value: Any, *rest: Any) -> Any:
    return value


def _from_type(rebuild: Callable[..., Any], kind: Any, args: Any, state: Any) -> Any:
    return rebuild(*args) if any(rebuild is known for known in _REBUILDERS) else Opaque()


_REBUILDERS = (_tensor, _tensor_v3, _first)

_KNOWN: dict[str, Any] = {
    "collections.OrderedDict": _mapping,
    "collections.defaultdict": lambda *_: Mapped(),
    "collections.Counter": _mapping,
    "builtins.set": Opaque,
    "builtins.frozenset": Opaque,
    "builtins.complex": complex,
    "builtins.bytearray": Opaque,
    "builtins.slice": Opaque,
    "builtins.object": Opaque,
    "_codecs.encode": Opaque,
    "copyreg._reconstructor": lambda *_: Opaque(),
    "torch.Size": lambda given: tuple(given) if isinstance(given, list | tuple) else (),
    "torch.device": _device,
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


_Unpickler: Any = pickle._Unpickler


class Reader(_Unpickler):  # type: ignore[misc]
    """Python's own reader that is written in Python: slower than the one in C, but each opcode can be looked at before it does something.

    So nothing is hashed whose hash may take for ever, and no more memory is taken than the file has bytes.
    """

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(_Unpickler.dispatch)

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
        tag, kind, key, *_ = given if isinstance(given, tuple) and len(given) >= 3 else (None, None, None)
        if tag != "storage" or not isinstance(kind, DtypeName) or not isinstance(key, str | int):
            raise RecordingError(f"{self.where} refers to something outside that is not a storage of torch.")
        return Storage(str(key), str(kind))

    def load_setitem(self) -> None:
        check_key(self.stack[-2])
        super().load_setitem()

    def load_setitems(self) -> None:
        for key in self.stack[::2]:
            check_key(key)
        super().load_setitems()

    def load_dict(self) -> None:
        for key in self.stack[::2]:
            check_key(key)
        super().load_dict()

    def load_empty_set(self) -> None:
        self.append(Opaque())

    def load_additems(self) -> None:
        self.pop_mark()

    def load_frozenset(self) -> None:
        self.pop_mark()
        self.append(Opaque())

    def load_bytearray8(self) -> None:
        self.load_binbytes8()
        self.stack[-1] = Opaque()

    for opcode, method in (
        (pickle.SETITEM, load_setitem), (pickle.SETITEMS, load_setitems), (pickle.DICT, load_dict), (pickle.EMPTY_SET, load_empty_set),
        (pickle.ADDITEMS, load_additems), (pickle.FROZENSET, load_frozenset), (pickle.BYTEARRAY8, load_bytearray8),
    ):  # fmt: skip
        dispatch[opcode[0]] = method
    del opcode, method


def read_pickle(file: IO[bytes], where: str) -> tuple[Any, set[str]]:
    """What the pickle describes, and the names of what became opaque. Raises RecordingError."""
    reader = Reader(file, where)
    try:
        return reader.load(), reader.left_out
    except RecordingError:
        raise
    except Exception as problem:  # any bytes may stand in the file, and each opcode fails its own way
        raise RecordingError(
            f"{where} cannot be read as a torch checkpoint: {type(problem).__name__}: {reason(problem)}."
        ) from None
