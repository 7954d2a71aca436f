"""Arguments of calls as JSON, and back: plain values, containers, torch's own small types, references to tensors.

A plain value and a list stand for themselves; anything else is an object with one key that says what it is.
Of the user's classes only named tuples and dataclasses are known; they are filled without calling any code of theirs.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from tensonde.adapters.torch.replay.bundle.tensors import Contents, Gathered, Unsaveable
from tensonde.adapters.torch.replay.call import Slot
from tensonde.errors import RecordingError

Path = tuple[str, str]
"""A root's name, and the path of a module, parameter or buffer inside it."""
_DEPTH = 12


class Encoder:
    """`modules` and `state` give the address of a module, and of a parameter or buffer, by id."""

    def __init__(self, tensors: Gathered, modules: Mapping[int, Path], state: Mapping[int, Path]) -> None:
        self.tensors, self.modules, self.state = tensors, modules, state
        self.used: set[str] = set()
        """Roots that something referred to."""
        self.settled: dict[Slot, Tensor] = {}
        """Values that are written as they are, not made again."""

    def encode(self, value: Any, depth: int = _DEPTH) -> Any:
        """Raises Unsaveable."""
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return value
        if isinstance(value, Slot):
            return {"slot": int(value)} if value not in self.settled else self._tensor(self.settled[value])
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, nn.Module):
            return {"module": self.address(value)}
        for name, kind in _NAMED.items():
            if isinstance(value, kind):
                return {name: str(value).removeprefix("torch.")}
        if value is Ellipsis:
            return {"ellipsis": True}
        if depth == 0:
            raise Unsaveable("an argument that is nested too deeply")
        return self._container(value, lambda item: self.encode(item, depth - 1))

    def _tensor(self, tensor: Tensor) -> Any:
        path = self.state.get(id(tensor))
        if path is not None:
            self.used.add(path[0])
            return {"state": list(path)}
        if type(tensor) not in (Tensor, nn.Parameter, nn.Buffer):
            raise Unsaveable(f"a tensor of type {type(tensor).__name__}")
        return {"tensor": self.tensors.value(tensor)}

    def address(self, module: nn.Module) -> list[str]:
        path = self.modules.get(id(module))
        if path is None:
            raise Unsaveable(f"a {type(module).__name__} that belongs to no module with a name")
        self.used.add(path[0])
        return list(path)

    def _container(self, value: Any, encode: Callable[[Any], Any]) -> Any:
        kind = type(value)
        if kind is list:
            return [encode(item) for item in value]
        if kind is tuple:
            return {"tuple": [encode(item) for item in value]}
        if kind is dict or kind is OrderedDict:
            name = "dict" if kind is dict else "ordered"
            return {name: [[encode(key), encode(item)] for key, item in value.items()]}
        if isinstance(value, torch.Size):
            return {"size": list(value)}
        if isinstance(value, slice):
            return {"slice": [encode(value.start), encode(value.stop), encode(value.step)]}
        if isinstance(value, complex):
            return {"complex": [encode(value.real), encode(value.imag)]}
        if isinstance(value, np.ndarray | np.generic):
            if value.dtype.hasobject:
                raise Unsaveable("an array of Python objects")
            made = torch.from_numpy(np.array(value))
            return {"array" if isinstance(value, np.ndarray) else "scalar": self.tensors.value(made)}
        if isinstance(value, PackedSequence):
            return {"packed": [encode(item) for item in value]}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"namedtuple": [*_class_name(kind), [encode(item) for item in value]]}
        if dataclasses.is_dataclass(value):
            held = {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
            return {"dataclass": [*_class_name(kind), held]}
        raise Unsaveable(f"an argument of type {kind.__name__}")


_NAMED: dict[str, type] = {
    "dtype": torch.dtype, "device": torch.device, "layout": torch.layout, "memory_format": torch.memory_format,
}  # fmt: skip


def _class_name(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


class Decoder:
    """`module` and `state` give what an address stands for; they raise RecordingError."""

    def __init__(
        self, contents: Contents, module: Callable[[str, str], nn.Module], state: Callable[[str, str], Tensor]
    ) -> None:
        self.contents, self.module, self.state = contents, module, state

    def decode(self, value: Any) -> Any:
        """Raises RecordingError for what no encoder writes."""
        if value is None or isinstance(value, bool | str | int | float):
            return value
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if isinstance(value, dict) and len(value) == 1:
            ((name, content),) = value.items()
            known = getattr(self, f"_{name}", None) if name in _KINDS else None
            if known is not None:
                try:
                    return known(content)
                except (TypeError, ValueError, KeyError, AttributeError, RuntimeError, RecursionError) as error:
                    raise RecordingError(f"the bundle is damaged: {str(value)[:80]} ({error}).") from None
        raise RecordingError(f"the bundle is damaged: {str(value)[:80]} is no value that Tensonde writes.")

    def _slot(self, content: Any) -> Slot:
        return Slot(int(content))

    def _float(self, content: Any) -> float:
        return float(content)

    def _tensor(self, content: Any) -> Tensor:
        return self.contents.tensor(content)

    def _state(self, content: Any) -> Tensor:
        root, path = content
        return self.state(str(root), str(path))

    def _module(self, content: Any) -> nn.Module:
        root, path = content
        return self.module(str(root), str(path))

    def _dtype(self, content: Any) -> torch.dtype:
        return _named(content, torch.dtype)

    def _layout(self, content: Any) -> torch.layout:
        return _named(content, torch.layout)

    def _memory_format(self, content: Any) -> torch.memory_format:
        return _named(content, torch.memory_format)

    def _device(self, content: Any) -> torch.device:
        return torch.device(str(content))

    def _ellipsis(self, content: Any) -> Any:
        return ...

    def _tuple(self, content: Any) -> tuple[Any, ...]:
        return tuple(self.decode(item) for item in content)

    def _dict(self, content: Any) -> dict[Any, Any]:
        return {self.decode(key): self.decode(item) for key, item in content}

    def _ordered(self, content: Any) -> OrderedDict[Any, Any]:
        return OrderedDict(self._dict(content))

    def _size(self, content: Any) -> torch.Size:
        return torch.Size([int(size) for size in content])

    def _slice(self, content: Any) -> slice:
        start, stop, step = (self.decode(item) for item in content)
        return slice(start, stop, step)

    def _complex(self, content: Any) -> complex:
        real, imaginary = (self.decode(item) for item in content)
        return complex(real, imaginary)

    def _array(self, content: Any) -> Any:
        return self.contents.tensor(content).numpy()

    def _scalar(self, content: Any) -> Any:
        return self.contents.tensor(content).numpy()[()]

    def _packed(self, content: Any) -> PackedSequence:
        data, sizes, order, back = (self.decode(item) for item in content)
        return tuple.__new__(PackedSequence, (data, sizes, order, back))

    def _namedtuple(self, content: Any) -> Any:
        module, name, items = content
        kind = _class_of(module, name)
        if not issubclass(kind, tuple) or len(kind._fields) != len(items):  # type: ignore[attr-defined]
            raise RecordingError(f"{module}.{name} is not the named tuple that it was when the bundle was made.")
        return tuple.__new__(kind, [self.decode(item) for item in items])

    def _dataclass(self, content: Any) -> Any:
        module, name, held = content
        kind = _class_of(module, name)
        if not dataclasses.is_dataclass(kind) or {field.name for field in dataclasses.fields(kind)} != set(held):
            raise RecordingError(f"{module}.{name} is not the dataclass that it was when the bundle was made.")
        made = object.__new__(kind)
        for field, item in held.items():
            object.__setattr__(made, field, self.decode(item))
        return made


_KINDS = frozenset(name[1:] for name in vars(Decoder) if name.startswith("_") and not name.startswith("__"))


def _named(name: Any, kind: type) -> Any:
    found = getattr(torch, str(name), None)
    if not isinstance(found, kind):
        raise RecordingError(f"this torch has no {kind.__name__} {str(name)[:40]!r}.")
    return found


def _class_of(module: Any, name: Any) -> type:
    """A class that the script has imported by itself; nothing is imported for a bundle."""
    found: Any = sys.modules.get(str(module))
    for part in str(name).split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise RecordingError(f"the script no longer has the class {module}.{name}, which an argument is made of.")
    return found
