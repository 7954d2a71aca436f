"""The digest of one tensor as a mapping, at once: for traces, where the numbers are wanted op by op.

Of a tensor with NaN or Inf it also says where: `bad_at` (flat index of the first), `bad_rows` and `bad_row.0` ...
(indices of
the first dimension, which is mostly the sample), and `masked.D`, `masked_row.D`: how many slices along dimension D are
-Inf throughout, and the first of them (index of the first dimension). `sketch.0` ... are its sketch (see `sketch.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from tensonde.adapters.torch.device import DeviceDigests
from tensonde.adapters.torch.sketch import Sketch
from tensonde.digest import Block, rows_of
from tensonde.digest.layout import COUNTS, STATS

LARGEST = 1 << 26
"""Elements; larger tensors are not measured."""
_ROWS = 8


class Measure:
    def __init__(self, *, sketch: bool = False) -> None:
        self._block = Block(8)
        self._sketch = Sketch() if sketch else None
        self._device = DeviceDigests()

    def __call__(self, tensor: Tensor) -> dict[str, float]:
        """{} for what has no digest. Must be called where no mode of torch's sees it."""
        if tensor.layout is not torch.strided:
            return self._stored(tensor.detach())
        if tensor.numel() > LARGEST:
            return {}
        plain = tensor.detach()
        block = self._block
        block.clear()
        if plain.device.type == "cpu":
            row = block.add(0, plain)
        else:
            row = self._device.add(block, 0, plain)
            self._device.settle(rows_of(block))
        if row < 0:
            return {}
        found = rows_of(block)[row]
        stats = {name: float(found[name]) for name in COUNTS + STATS}
        if nonfinite(stats) and not plain.is_complex():
            stats |= _places(plain)
        if self._sketch is not None:
            stats |= self._sketch(plain)
        return stats

    def _stored(self, tensor: Tensor) -> dict[str, float]:
        """Of a sparse tensor, the values that it stores: it has no others."""
        if tensor.layout is torch.sparse_coo:
            values = tensor._values()
        elif tensor.layout in _COMPRESSED:
            values = tensor.values()
        else:
            return {}
        return {name: value for name, value in self(values).items() if not name.startswith(_WHERE)}


_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_WHERE = ("bad_", "masked", "sketch.")
"""What tells of places, which are others among the stored values."""


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
