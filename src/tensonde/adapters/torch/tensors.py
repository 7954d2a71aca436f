"""Finding tensors in what modules take and give, and turning them into plain values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.modes import unseen

MOST = 64
"""How many tensors of one nested value are looked at."""
_DEPTH = 6


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in nested tuples, lists, dicts, dataclasses and named tuples, in order."""
    found: list[Tensor] = []
    _collect(value, found, _DEPTH)
    return found


def _collect(value: Any, found: list[Tensor], depth: int) -> None:
    if isinstance(value, Tensor):
        if len(found) < MOST:
            found.append(value)
    elif depth == 0 or isinstance(value, str | bytes | int | float | torch.nn.Module):
        return
    elif isinstance(value, list | tuple):
        for item in value[:MOST]:
            _collect(item, found, depth - 1)
    elif isinstance(value, Mapping):
        for item in list(value.values())[:MOST]:
            _collect(item, found, depth - 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _collect(getattr(value, field.name, None), found, depth - 1)


def dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def raw_bytes(tensor: Tensor) -> tuple[bytes, str, tuple[int, ...]]:
    """The bytes of a tensor with the name of its dtype and its shape, for the recording."""
    view, dtype, shape = raw_view(tensor)
    return view.tobytes(), dtype, shape


def raw_view(tensor: Tensor) -> tuple[memoryview, str, tuple[int, ...]]:
    """The same without a copy, where the tensor lies in memory as it should; it is good as long as the tensor is not
    changed."""
    with unseen():  # these are no ops of the training's
        plain = tensor.detach()
        if plain.is_sparse or plain.layout is not torch.strided:
            plain = plain.to_dense()
        plain = plain.resolve_conj().resolve_neg().cpu().contiguous()
        # A dimension of 1 may have any stride and still be contiguous, which a view as bytes does not like.
        flat = plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)
        return memoryview(flat.numpy()), dtype_name(plain), tuple(plain.shape)
