"""Which token stands where padding stands: a few batches of ids that a model with one embedding is given.

Padding is a run at the end of rows (or at their beginning), of differing length, and stands nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.observers.reading import READING
from tensonde.adapters.torch.run.record import ModuleRecord
from tensonde.adapters.torch.tensors import dense_in

LOOKS = 12
NONE = -1
"""In the place of a padding index, where the embedding has none."""
ROWS = 256


class Tokens:
    def __init__(self, entries: Mapping[int, ModuleRecord]) -> None:
        self.entries = entries
        self.tables: dict[int, dict[str, Any] | None] = {}
        """By the root's id: its only embedding, and what was seen; None where there is not just one."""

    def given(self, root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if id(root) not in self.tables:
            self.tables[id(root)] = self._table(root) if len(self.tables) < LOOKS else None
        seen = self.tables[id(root)]
        if seen is None or seen["looks"] >= LOOKS:
            return
        for tensor in dense_in((args, kwargs)):
            if not _may_be_ids(tensor):
                continue
            if tensor.device.type == "cpu" and _ids(tensor, seen["size"]):
                seen["looks"] += 1
                self._look(seen, tensor.detach()[:ROWS])
                return
            if tensor.device.type != "cpu" and not READING.seldom(tensor):
                READING.later([tensor.detach()[:ROWS]], lambda rows, seen=seen: self._arrived(seen, rows))
                return

    def _arrived(self, seen: dict[str, Any], rows: Tensor) -> None:
        if _ids(rows, seen["size"]):
            seen["looks"] += 1
            self._look(seen, rows)

    def _table(self, root: nn.Module) -> dict[str, Any] | None:
        tables = [m for m in root.modules() if isinstance(m, nn.Embedding)]
        if len(tables) != 1 or id(tables[0]) not in self.entries:
            return None
        given = tables[0].padding_idx
        name, pad = self.entries[id(tables[0])].name, NONE if given is None else int(given)
        seen = {"module": name, "padding_idx": pad, "size": tables[0].num_embeddings, "looks": 0, "rows": 0}
        return {**seen, "padded": 0, "ends": 0, "inside": 0, "lengths": [], "other": None}

    def _look(self, seen: dict[str, Any], rows: Tensor) -> None:
        pad = seen["padding_idx"]
        seen["rows"] += len(rows)
        seen["ends"] += int(((rows[:, -1] == pad) & (rows[:, -2] == pad)).sum())
        seen["ends"] += int(((rows[:, 0] == pad) & (rows[:, 1] == pad)).sum())
        for turned in (rows, rows.flip(1)):
            last = turned[:, -1]
            twice = last[last == turned[:, -2]]
            other = int(twice.mode().values) if len(twice) else pad
            if other == pad or seen["other"] not in (None, other):
                continue
            alike = turned == other
            run = alike.flip(1).int().cumprod(1).sum(1)
            if bool((alike.sum(1) != run).any()) or int((run >= 2).sum()) < len(rows) / 4:
                continue
            seen["other"] = other
            seen["padded"] += int((run >= 2).sum())
            seen["lengths"] = sorted({*seen["lengths"], *run.unique().tolist()})[:16]
            real = (turned != pad) & ~alike
            after = real.flip(1).int().cumsum(1).flip(1) > 0
            before = real.int().cumsum(1) > 0
            seen["inside"] += int(((turned == pad) & before & after).any(1).sum())
            return
        seen["other"] = -1  # no token stands there alone in this batch

    def facts(self) -> list[dict[str, Any]]:
        return [seen for seen in self.tables.values() if seen is not None and seen["looks"]]


def _ids(tensor: Tensor, size: int) -> bool:
    """A batch of rows of ids into a table."""
    return int(tensor.min()) >= 0 and int(tensor.max()) < size


def _may_be_ids(tensor: Tensor) -> bool:
    whole = tensor.ndim == 2 and tensor.dtype in (torch.int64, torch.int32)
    return whole and tensor.shape[1] >= 4 and len(tensor) >= 2
