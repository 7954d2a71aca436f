"""`tensonde check` and what the terminal shows."""

from __future__ import annotations

import json
from pathlib import Path

from launch import cli
from tensonde.cli.show.outcome import grouped
from tensonde.diagnose.document import PAGE, page
from tensonde.diagnose.rule import RULES
from tensonde.model.finding import Finding

ROOT = Path(__file__).parent.parent.parent

TRAIN = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.aux = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 2)
    def forward(self, x):
        return self.b(self.a(x)){aux}
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr={lr})
for _ in range(10):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
print("the end")
"""


def test_a_training_that_trains(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN.format(aux=" + self.aux(x)", lr=0.1))
    ran = cli("check", "--json", "train.py", cwd=tmp_path)
    assert ran.code == 0, ran.err
    answer = json.loads(ran.out)
    assert answer["trains"] is True
    assert {line["state"] for line in answer["checks"]} == {"ok"}
    assert len(answer["parameters"]) == 6
    assert not (tmp_path / ".tensonde").exists()


def test_a_layer_that_nothing_uses(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN.format(aux="", lr=0.1))
    ran = cli("check", "train.py", cwd=tmp_path)
    assert ran.code == 1
    assert "2 of 6 trainable parameters never got a gradient" in ran.out
    assert "aux.weight" in ran.out
    assert "it does not train" in ran.out


def test_steps_that_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN.format(aux=" + self.aux(x)", lr=0.0))
    ran = cli("check", "--json", "train.py", cwd=tmp_path)
    assert ran.code == 1
    states = {state["name"]: state for state in json.loads(ran.out)["parameters"]}
    assert states["a.weight"]["gradient"]
    assert not states["a.weight"]["changed"]
    assert states["a.weight"]["why"] == "the learning rate is 0"


def test_an_error_and_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN.format(aux="[0, :, None, 0]", lr=0.1))
    ran = cli("check", "train.py", cwd=tmp_path)
    assert ran.code == 1
    assert "IndexError" in ran.out
    assert cli("check", "nowhere.py", cwd=tmp_path).code == 2


def test_the_first_finding_is_shown_with_its_source(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        TRAIN.format(aux="", lr=0.1).replace("nn.Linear(4, 2), nn", "nn.Linear(5, 2), nn")
    )
    ran = cli("run", "--record", "out", "train.py", cwd=tmp_path)
    assert "→     7 │     self.a, self.b, self.aux" in ran.err
    assert "and 1 more" in ran.err
    whole = cli("run", "--verbose", "--blocking", "--record", "second", "train.py", cwd=tmp_path)
    assert "error: RuntimeError in b: mat1 and mat2" in whole.err
    assert " more that " not in whole.err
    again = cli("diagnose", "out", cwd=tmp_path)
    assert again.code == 1
    assert "  error: RuntimeError in b" in again.out


def test_consequences_stand_under_their_cause() -> None:
    def finding(title: str, caused_by: int | None = None) -> Finding:
        return Finding("r", "error", title, "a", caused_by=caused_by)

    given = [finding("a"), finding("b"), finding("b1", 1), finding("a1", 0), finding("a11", 3)]
    assert [(f.title, depth) for f, depth in grouped(given)] == [("a", 0), ("a1", 1), ("a11", 2), ("b", 0), ("b1", 1)]


def test_the_rules_page_is_not_stale() -> None:
    assert (ROOT / PAGE).read_text() == page(), "run `python -m tensonde.diagnose.document`"
    for rule in RULES:
        assert f"### {rule.name}\n" in page()
        assert rule.reasoning, f"{rule.name} has no docstring"


def test_the_table_agrees_with_the_finding(tmp_path: Path) -> None:
    script = TRAIN.format(aux=" + self.aux(x)", lr=0.1).replace("SGD(model.parameters()", "SGD(model.a.parameters()")
    (tmp_path / "train.py").write_text(script)
    ran = cli("check", "train.py", cwd=tmp_path)
    assert ran.code == 1
    assert "all 6 trainable parameters got a gradient" in ran.out
    assert "b.weight    yes       no       it is in no optimizer" in ran.out
    assert "get gradients but are in no optimizer" in ran.out


def test_a_rate_of_0_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN.format(aux=" + self.aux(x)", lr=0.0))
    ran = cli("check", "train.py", cwd=tmp_path)
    assert ran.code == 1
    assert "the learning rate is 0" in ran.out
    assert "train.py:11" in ran.out
