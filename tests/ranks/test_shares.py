"""What a rank has taken for itself, as its variables hold it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tensonde.adapters.torch.observers.shares import shares

PROGRAM = """
import numpy as np
import torch

class Data:
    def __init__(self, rows, rank):
        self.rows = rows[rank::2]
        self.label = "rows"
    def __getitem__(self, k):
        return self.rows[k]

class Slotted:
    __slots__ = ("rows",)
    def __getitem__(self, k):
        return k

def worker(rank, look):
    name, count, nothing, slotted = "run", 3, None, Slotted()
    order = torch.arange(64)[rank::2]
    files = [f"{k}.pt" for k in range(64)][rank::2]
    table = np.arange(128.0).reshape(64, 2)[rank * 32 : (rank + 1) * 32]
    labels = torch.zeros(64, dtype=torch.long)[rank::2]
    few = list(range(8))[rank::2]
    whole = list(range(64))
    data = Data(torch.arange(128.0).reshape(64, 2), rank)
    return look()
"""


def looked_at(tmp_path: Path, rank: int) -> list[dict[str, Any]]:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    names: dict[str, Any] = {"__name__": "program", "__file__": str(path)}
    module = type(sys)("program")
    module.__file__ = str(path)
    sys.modules["program"] = module
    try:
        exec(compile(PROGRAM, str(path), "exec"), names)
        return names["worker"](rank, lambda: shares(sys._getframe(1)))  # type: ignore[no-any-return]
    finally:
        del sys.modules["program"]


@pytest.mark.parametrize("rank", [0, 1])
def test_parts_of_a_whole_are_found(rank: int, tmp_path: Path) -> None:
    found = {one["name"]: one["size"] for one in looked_at(tmp_path, rank)}
    assert found == {"order": 32, "files": 32, "table": 32, "data.rows": 32}


def test_two_ranks_have_nothing_in_common(tmp_path: Path) -> None:
    for one, other in zip(looked_at(tmp_path, 0), looked_at(tmp_path, 1), strict=True):
        assert one["name"] == other["name"]
        assert not set(one["items"]) & set(other["items"])
