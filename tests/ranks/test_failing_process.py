"""A process that the program starts itself, and that fails: its traceback is the one that it prints without Tensonde."""

from __future__ import annotations

from pathlib import Path

from launch import Foundry

PROGRAM = """
import torch
import torch.multiprocessing as mp

def work(k):
    torch.nn.Linear(2, 2)(torch.randn(1, 2)).sum().backward()
    raise ValueError("boom")

if __name__ == "__main__":
    process = mp.get_context("fork").Process(target=work, args=(1,), name="worker")
    process.start()
    process.join()
    print(process.exitcode)
"""


def test_the_traceback_is_the_same_and_the_exception_is_known(foundry: Foundry, tmp_path: Path) -> None:
    bare = foundry.bare(PROGRAM, tmp_path)
    watched = foundry.watched(PROGRAM, tmp_path)
    assert "ValueError: boom" in bare.err
    assert (watched.code, watched.out, watched.err) == (bare.code, bare.out, bare.err)
    assert [event["type"] for event in watched.rank.events if event["kind"] == "exception"] == ["ValueError"]
