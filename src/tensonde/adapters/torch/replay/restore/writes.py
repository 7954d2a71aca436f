"""Sees every op that writes while a step is run again, and copies what was there before the first write.

A dispatch mode sees what a function mode does not: ops inside of torch's own functions, lists that `_foreach` ops take,
and the backward pass. What was made during the run may be written to freely.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tensonde.adapters.restore.holders import StateHolder

MOST_BYTES = 1 << 30
"""More is not copied: the run ends before such a write."""
_COMMUNICATION = frozenset({"c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd", "symm_mem"})
_UNDECLARED = {"native_batch_norm": (3, 4), "cudnn_batch_norm": (3, 4), "miopen_batch_norm": (3, 4)}
"""Arguments that these ops write to although their schemas do not say so."""


class Irreversible(Exception):
    """The run is about to do something that could not be undone; it has not been done."""


class Writes(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.refused = ""
        """What the run was not allowed to do."""
        self._made: set[int] = set()
        self._copies: list[tuple[Tensor, Tensor, Tensor, int]] = []
        self._done: set[tuple[Any, ...]] = set()
        self._generators: dict[int, tuple[torch.Generator, StateHolder]] = {}
        self._bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace in _COMMUNICATION:
            self.refuse("communicates with other ranks")
        given = {storage_of(part) for tensor in _tensors((args, kwargs)) for part in (tensor, *parts_of(tensor))}
        for target in _targets(func, args, kwargs):
            self._before_write(target)
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Generator) and id(value) not in self._generators:
                self._generators[id(value)] = value, StateHolder(value.get_state, value.set_state)
        out = func(*args, **kwargs)
        self._made.update({storage_of(tensor) for tensor in _tensors(out)}.difference(given))
        return out

    def _before_write(self, target: Tensor) -> None:
        storage = storage_of(target)
        if storage in self._made or target.device.type == "meta":
            return
        if target.layout is not torch.strided:
            self.refuse("writes to a tensor that is not dense")
        key = (storage, target.storage_offset(), tuple(target.shape), target.stride())
        if key in self._done:
            return
        self._bytes += target.numel() * target.element_size()
        if self._bytes > MOST_BYTES:
            self.refuse("writes to more memory than may be copied")
        self._done.add(key)
        self._copies.append((target, target.detach(), target.clone(), version_of(target)))

    def refuse(self, what: str) -> None:
        self.refused = what
        raise Irreversible(what)

    def undo(self) -> Iterator[tuple[Tensor, int]]:
        """Puts everything back, the last write first; what was written, with its version of before."""
        for _, holder in self._generators.values():
            holder.restore()
        for target, alias, copy, version in reversed(self._copies):
            alias.copy_(copy)
            if header(target) != header(alias):
                target.data = alias
            yield target, version


def parts_of(tensor: Tensor) -> list[Tensor]:
    """The dense tensors that a sparse one is made of."""
    layout = tensor.layout
    if layout is torch.strided or type(tensor) not in (Tensor, torch.nn.Parameter):
        return []
    with torch._C.DisableTorchFunction(), torch.no_grad():
        if layout is torch.sparse_coo:
            return [tensor._indices(), tensor._values()]
        if layout in (torch.sparse_csr, torch.sparse_bsr):
            return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        if layout in (torch.sparse_csc, torch.sparse_bsc):
            return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []


def storage_of(tensor: Tensor) -> int:
    """The same for tensors that share memory."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # sparse, say: it shares with nothing else
        return id(tensor)


def header(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor's values lie, and how they are read."""
    try:
        return (storage_of(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
    except (RuntimeError, NotImplementedError):
        return (tuple(tensor.shape), tensor.dtype)


def version_of(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)


def _targets(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    schema = func._schema
    if schema.is_mutable:
        for index, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                yield from _tensors(args[index] if index < len(args) else kwargs.get(argument.name))
    else:
        for index in _UNDECLARED.get(func._opname, ()):
            yield from _tensors(args[index])


def _tensors(value: Any) -> Iterator[Tensor]:
    """In what ops take and give: tensors and lists of them."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
