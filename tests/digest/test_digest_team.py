"""Many tensors by several threads: the same bits as one by one, in order, and never a hang in a forked child."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from tensonde.digest import _kernel, rows_of

LARGE = 700_000


def mixed() -> list[torch.Tensor | None]:
    torch.manual_seed(0)
    extreme = torch.randn(40_000, dtype=torch.float64) * 1e300
    return [
        torch.randn(LARGE), torch.randn(5), None, torch.randn(800, 900).t(), torch.randn(LARGE).bfloat16(),
        torch.randint(0, 9, (50_000,)), torch.zeros(0), extreme, torch.randn(200_000)[::2], torch.tensor(3.0),
    ]  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_many_are_as_one_by_one(threads: int) -> None:
    tensors = mixed()
    sites = list(range(len(tensors)))
    together, alone = _kernel.Block(32), _kernel.Block(32)
    together.threads = threads
    assert together.add_many(sites, tensors, 4) == 9
    for site, tensor in zip(sites, tensors, strict=True):
        if tensor is not None:
            alone.add(site, tensor, 4)
    assert rows_of(together).tobytes() == rows_of(alone).tobytes()


def test_more_tensors_than_one_group() -> None:
    tensors = [torch.full((k % 3 * 20_000 + 1,), float(k)) for k in range(300)]
    block = _kernel.Block(512)
    block.threads = 2
    assert block.add_many(range(300), tensors) == 300
    rows = rows_of(block)
    assert rows["site"].tolist() == list(range(300))
    assert np.array_equal(rows["max"], np.arange(300.0))


def test_a_callback_may_digest_many_itself() -> None:
    """The rows that it adds come before those that were not added yet, and all are right."""
    bad = torch.randn(LARGE)
    bad[7] = float("nan")
    block = _kernel.Block(16)
    block.threads = 2

    def look(site: int, row: int, tensor: torch.Tensor) -> None:
        assert (site, row, tensor) == (1, 1, bad)
        block.add_many([10, 11], [torch.ones(LARGE), torch.ones(LARGE)])

    block.on_nonfinite = look
    block.add_many([0, 1, 2], [torch.zeros(LARGE), bad, torch.full((LARGE,), 2.0)])
    rows = rows_of(block)
    assert rows["site"].tolist() == [0, 1, 10, 11, 2]
    assert rows["nan"].tolist() == [0, 1, 0, 0, 0]
    assert rows["mean"][2:].tolist() == [1, 1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_does_not_wait_for_threads_that_are_gone() -> None:
    script = f"""
import os, torch
from tensonde.digest import _kernel, rows_of
torch.set_num_threads(2)
block = _kernel.Block(8)
block.threads = 2
tensors = [torch.ones({LARGE}), torch.ones({LARGE})]
block.add_many([0, 1], tensors)
child = os.fork()
if child == 0:
    block.add_many([0, 1], tensors)
    os._exit(0 if rows_of(block)["mean"].tolist() == [1, 1, 1, 1] else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.strip() == "0"
