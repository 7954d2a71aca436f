"""The digest of one tensor as a mapping, at once: for traces, where the numbers are wanted op by op.

Of a tensor with NaN or Inf it also says where: `bad_at` (flat index of the first), `bad_rows` and `bad_row.0` ...
(indices of the
first dimension, which is mostly the sample), and `masked.D`, `masked_row.D`: how many slices along dimension D are -Inf
throughout, and the first of them (index of the first dimension). `sketch.0` ... are its sketch (see `sketch.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.capture import capturing
from tensonde.adapters.torch.digests.device.digests import DeviceDigests
from tensonde.adapters.torch.tensors import bytes_of, is_plain, shape_of, values_of
from tensonde.adapters.torch.tracing.sketch import Sketch
from tensonde.digest import Block
from tensonde.digest.layout import COUNTS, ROW, STATS

LARGEST = 1 << 26
"""Elements; larger tensors are not measured."""
BROUGHT = 1 << 20
"""Bytes of a device's tensor that are brought to the host and measured there: one copy, where the device would take dozens of launches."""
_ROWS = 8
_NAMES = COUNTS + STATS
_FIELDS = struct.Struct(f"<{len(COUNTS)}q{len(STATS)}d")
_PLACES: Mapping[str, Any] = ROW.fields or {}
_OFFSET = _PLACES[COUNTS[0]][1]
_BAD = struct.Struct("<3q")
_BAD_OFFSET = _PLACES["nan"][1]
"""Counts and statistics stand side by side in a row: one call reads them, where numpy takes one for each."""
assert _PLACES[STATS[-1]][1] + 8 == _OFFSET + _FIELDS.size
assert [_PLACES[name][1] - _BAD_OFFSET for name in ("nan", "pos_inf", "neg_inf")] == [0, 8, 16]


class Measure:
    def __init__(self, *, sketch: bool = False) -> None:
        self._block = Block(8)
        self._row = memoryview(self._block)
        self._sketch = Sketch() if sketch else None
        self._device = DeviceDigests()

    def __call__(self, tensor: Tensor, *, sketched: bool = True) -> dict[str, float]:
        """{} for what has no digest. Must be called where no mode of torch's sees it."""
        ordinary = is_plain(tensor)
        plain = tensor if ordinary else values_of(tensor)
        if plain is None or plain.numel() > LARGEST or (not ordinary and plain.device.type != "cpu" and capturing()):
            return {}
        plain = plain.detach()
        if not ordinary and plain.device.type != "cpu" and bytes_of(plain) <= BROUGHT:
            plain = plain.cpu()
        whole = ordinary or (tensor.layout is torch.strided and plain.shape == shape_of(tensor))
        stats = self._stats(plain, on_host=ordinary or plain.device.type == "cpu")
        if not stats:
            return {}
        if nonfinite(stats) and whole and not plain.is_complex():
            stats |= _places(plain.float() if plain.element_size() == 1 else plain)  # float8 knows no comparison
        elif nonfinite(stats) and tensor.layout is torch.sparse_coo:
            stats |= _stored_places(tensor.detach().coalesce())
        if sketched and self._sketch is not None and whole:
            stats |= self._sketch(plain)
        return stats

    def is_finite(self, tensor: Tensor) -> bool:
        """Whether `tensor` holds neither NaN nor Inf, as far as it can be measured."""
        if not is_plain(tensor) or tensor.numel() > LARGEST:
            return not nonfinite(self(tensor, sketched=False))
        self._block.clear()
        return self._block.add(0, tensor.detach()) < 0 or not any(_BAD.unpack_from(self._row, _BAD_OFFSET))

    def again(self, tensor: Tensor, known: dict[str, float]) -> dict[str, float]:
        """The same as a call; `known` itself if the digest has not changed, whose sketch need not be computed again."""
        if self._sketch is None or not known or not is_plain(tensor) or tensor.numel() > LARGEST:
            return self(tensor)
        now = self._stats(tensor.detach(), on_host=True)
        return known if now and all(known.get(name) == value for name, value in now.items()) else self(tensor)

    def _stats(self, plain: Tensor, *, on_host: bool) -> dict[str, float]:
        if not on_host:
            rows = self._device.at_once(plain)
            return {name: float(rows[0][name]) for name in _NAMES} if rows is not None else {}
        self._block.clear()
        if self._block.add(0, plain) < 0:
            return {}
        return dict(zip(_NAMES, map(float, _FIELDS.unpack_from(self._row, _OFFSET)), strict=True))


def _stored_places(tensor: Tensor) -> dict[str, float]:
    """Of a sparse tensor, in its own shape."""
    values = tensor.values()
    if values.ndim != 1:
        return {}
    at = tensor.indices()[:, ~torch.isfinite(values)]
    rows = at[0].unique()
    found = {"bad_at": float(_flat(at[:, 0].tolist(), tensor.shape)), "bad_rows": float(len(rows))}
    return found | {f"bad_row.{k}": float(row) for k, row in enumerate(rows[:_ROWS].tolist())}


def _flat(index: list[int], shape: Sequence[int]) -> int:
    found = 0
    for at, size in zip(index, shape, strict=True):
        found = found * size + at
    return found


def nonfinite(stats: dict[str, float]) -> bool:
    return bool(stats) and stats["nan"] + stats["pos_inf"] + stats["neg_inf"] > 0


def _places(tensor: Tensor) -> dict[str, float]:
    with torch.no_grad():
        bad = ~torch.isfinite(tensor)
        found = {"bad_at": float(bad.reshape(-1).to(torch.uint8).argmax())}
        if tensor.ndim:
            rows = bad.reshape(len(bad), -1).any(1).nonzero().reshape(-1)
            found["bad_rows"] = float(len(rows))
            found |= {f"bad_row.{k}": float(row) for k, row in enumerate(rows[:_ROWS].tolist())}
        masked = torch.isneginf(tensor) if tensor.is_floating_point() else bad
        if tensor.ndim and bool(masked.any()):
            for dim in range(tensor.ndim):
                whole = masked.all(dim)
                count = int(whole.sum())
                if count:
                    found[f"masked.{dim}"] = float(count)
                    if dim:
                        found[f"masked_row.{dim}"] = float(whole.nonzero()[0, 0])
    return found
