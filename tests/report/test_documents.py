"""The documents that programs read have the fields and versions that docs/json.md says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from launch import cli
from tensonde.model.documents import DOCUMENTS, Kind, page

ROOT = Path(__file__).parent.parent.parent
GOLDEN = ROOT / "tests" / "golden" / "v1"


def test_the_page_is_made_from_the_table() -> None:
    assert (ROOT / "docs" / "json.md").read_text() == page(), "python -m tensonde.model.documents"
    assert set(DOCUMENTS) == set(get_args(Kind))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("run", ["show", GOLDEN, "--json"]),
        ("history", ["show", GOLDEN, "loss", "--json"]),
        ("report", ["diagnose", GOLDEN, "--json"]),
    ],
)
def test_commands_print_these_fields(kind: Kind, words: list[Any], tmp_path: Path) -> None:
    document = json.loads(cli(*words, cwd=tmp_path).out)
    assert tuple(document) == DOCUMENTS[kind].fields
    assert document["schema"] == DOCUMENTS[kind].version


@pytest.mark.slow
def test_check_compare_and_replay_print_these_fields(tmp_path: Path) -> None:
    script = (
        "import torch\ntorch.manual_seed(0)\nnet = torch.nn.Linear(4, 2)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for step in range(2):\n    loss = torch.log(torch.relu(net(torch.randn(5, 4)))).sum()\n"
        "    opt.zero_grad(); loss.backward(); opt.step()\n"
    )
    (tmp_path / "train.py").write_text(script)
    cli("run", "-q", "--record", "one", "train.py", cwd=tmp_path)
    for kind, words in (
        ("check", ["check", "--json", "train.py"]), ("replay", ["replay", "--json", "one"]), ("verdict", ["compare", "--json", "one", "one"]),
    ):  # fmt: skip
        document = json.loads(cli(*words, cwd=tmp_path).out)
        assert set(DOCUMENTS[kind].fields) <= set(document), kind  # type: ignore[index]
        assert document["schema"] == DOCUMENTS[kind].version  # type: ignore[index]
