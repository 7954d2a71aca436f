"""What stands around the line of a backward pass, and what a hook of DistributedDataParallel sums."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tensonde.program.surroundings import caught, unsynchronised

LOOP = """
def train(model, batches):
    for x in batches:
        try:
            model(x).backward()
        except ValueError:
            {}
"""


@pytest.mark.parametrize(
    ("handler", "lines"), [("continue", [6]), ("print(1)", [6]), ("raise", []), ("break", []), ("return", [])]
)
def test_a_handler_that_goes_on_leaves_out_a_batch(tmp_path: Path, handler: str, lines: list[int]) -> None:
    path = tmp_path / "train.py"
    path.write_text(LOOP.format(handler))
    assert caught(str(path), 5) == lines


def test_a_handler_around_the_loop_leaves_out_none(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("try:\n    for x in y:\n        f(x).backward()\nexcept ValueError:\n    pass\n")
    assert caught(str(path), 3) == []


def test_the_with_that_may_keep_gradients_from_being_reduced(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "with torch.no_grad():\n    with a() if sync else model.no_sync():\n        f(x).backward()\n    f(x).backward()\n"
    )
    assert unsynchronised(str(path), 3) == 2
    assert unsynchronised(str(path), 4) == 0
