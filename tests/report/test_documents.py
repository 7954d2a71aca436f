"""The documents that programs read have the fields and versions that docs/json.md says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from launch import cli
from tensonde.cli.main import Lazy
from tensonde.model.documents import DOCUMENTS, Kind, page, problems_of

ROOT = Path(__file__).parent.parent.parent
GOLDEN = ROOT / "tests" / "golden" / "v1"
TENSONDE = Lazy()


def test_the_page_is_made_from_the_table() -> None:
    assert (ROOT / "docs" / "json.md").read_text() == page(), "python -m tensonde.model.documents"
    assert set(DOCUMENTS) == set(get_args(Kind))


def checked(kind: Kind, *words: Any, cwd: Path) -> Any:
    """What a command prints, which is as docs/json.md says."""
    ran = cli(*words, cwd=cwd)
    document = json.loads(ran.out)
    assert problems_of(kind, document) == [], (kind, ran.err)
    return document


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("run", ["show", GOLDEN, "--json"]),
        ("history", ["show", GOLDEN, "loss", "--json"]),
        ("graphs", ["show", GOLDEN, "--graphs", "--json"]),
        ("ranks", ["show", GOLDEN, "--ranks", "--json"]),
        ("report", ["diagnose", GOLDEN, "--json"]),
        ("rows", ["query", GOLDEN, "SELECT * FROM digests", "--json"]),
        ("verdict", ["compare", GOLDEN, GOLDEN, "--json"]),
        ("environment", ["doctor", "--json"]),
    ],
)
def test_what_commands_print_is_as_described(kind: Kind, words: list[Any], tmp_path: Path) -> None:
    checked(kind, *words, cwd=tmp_path)


def test_checkpoints_and_dumps(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", weight=np.ones((2, 3), np.float32), bad=np.array([np.nan, 1.0]))
    np.savez(tmp_path / "two.npz", weight=np.zeros((2, 3), np.float32))
    assert len(checked("checkpoint", "ckpt", "one.npz", "--json", cwd=tmp_path)["tensors"]) == 2
    assert checked("changes", "ckpt", "one.npz", "two.npz", "--json", cwd=tmp_path)["counts"]
    assert checked("conversion", "convert", "one.npz", "out.safetensors", "--json", cwd=tmp_path)["tensors"] == 2


def test_every_command_with_json_has_a_document() -> None:
    described = {made.split()[1] for one in DOCUMENTS.values() for made in one.made_by.split(", ") if "--json" in made}
    every = {
        name
        for name in TENSONDE.list_commands(None)  # type: ignore[arg-type]
        if any("--json" in option.opts for option in TENSONDE.get_command(None, name).params)  # type: ignore[arg-type, union-attr]
    }
    assert every == described


def test_what_departs_is_told() -> None:
    row = {"schema": 2, "run": None, "rows": {}, "more": 1}
    assert problems_of("history", row) == [
        "more is not described", "problems is missing", "run is None, no text", "rows is {}, no list", "schema is 2, not 1",
    ]  # fmt: skip


TRAINING = """\
import torch
torch.manual_seed(0)
net = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
rate = torch.optim.lr_scheduler.StepLR(opt, 2)
for step in range(3):
    loss = torch.log(torch.relu(net(torch.randn(5, 4)))).sum()
    opt.zero_grad(); loss.backward(); opt.step(); rate.step()
print("loss", 0.5)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("check", ["check", "--json", "train.py"]),
        ("memory", ["check", "--memory", "--limit", "1G", "--json", "train.py"]),
        ("rates", ["lr", "--steps", "8", "--json", "train.py"]),
        ("replay", ["replay", "--json", "one"]),
    ],
)
def test_what_trainings_are_asked_is_as_described(kind: Kind, words: list[Any], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    if kind == "replay":
        cli("run", "-q", "--record", "one", "train.py", cwd=tmp_path)
    checked(kind, *words, cwd=tmp_path)
