"""A checksum of a tensor's memory that is quick on any device: sums of its words by row and by column.

An integer sum alone would not see items change places; both together do.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import torch
from torch import Tensor

from tensonde.adapters.torch.tensors import array_of, raw_view

_SMALL = 1 << 15
_WIDTH = 1024


def memory_sum(tensor: Tensor) -> int | None:
    """None where the tensor has no memory of its own that could be read."""
    try:
        if tensor.layout is torch.sparse_coo:
            parts = [tensor._indices(), tensor._values()]
        elif tensor.layout is torch.strided:
            parts = [tensor]
        else:
            parts = [tensor.values()]
        found = 0
        for part in parts:
            found = zlib.crc32(_sum(part), found)
        return found
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None


def _sum(tensor: Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.device.type == "cpu" and plain.numel() * plain.element_size() <= _SMALL:
        return raw_view(plain)[0].tobytes()
    return b"".join(array_of(part.cpu()).tobytes() for part in sums(plain))


def crc(parts: Iterable[Tensor]) -> int:
    """Of sums that are on the host."""
    found = 0
    for part in parts:
        found = zlib.crc32(array_of(part).tobytes(), found)
    return found


def sums(tensor: Tensor) -> list[Tensor]:
    """What the checksum of a strided tensor is made of, on its device."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    nbytes = plain.numel() * plain.element_size()
    if not plain.is_contiguous() or plain.storage_offset() * plain.element_size() % 8:
        plain = plain.clone(memory_format=torch.contiguous_format)
    flat = (torch.view_as_real(plain) if plain.is_complex() else plain).view(-1).view(torch.uint8)
    words = flat[: nbytes // 8 * 8].view(torch.int64)
    table = words[: len(words) // _WIDTH * _WIDTH].view(-1, _WIDTH)
    return [torch.cat([table.sum(0), table.sum(1), words[table.numel() :]]), flat[nbytes // 8 * 8 :]]
