"""Errors that a device reports late: where they surface, and that synchronous mode makes them surface at their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry, cli
from tensonde.diagnose.diagnose import diagnose
from tensonde.store.reader import Recording

pytestmark = pytest.mark.usefixtures("standin")

HERE = Path(__file__).parent
SCRIPT = f"""
import sys; sys.path.append({str(HERE)!r})
import standin, torch
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(10, 8), nn.Linear(8, 10)

    def forward(self, ids):
        found = self.table(ids)  # HERE
        return self.head(found.mean(1))

net = Net().to("standin")
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(8):
    ids = torch.randint(0, 10, (4, 6))
    ids[2, 3] = 12 if step == 5 else 1
    y = torch.randint(0, 10, (4,))
    loss = nn.functional.cross_entropy(net(ids.to("standin")), y.to("standin"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())  # LATE
"""


def line(mark: str) -> int:
    return next(k for k, text in enumerate(SCRIPT.splitlines(), 1) if mark in text)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_an_error_surfaces_late_and_with_blocking_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    env = {"STANDIN_DELAY": "20"}
    late = cli("run", "--record", "late", "train.py", cwd=tmp_path, env=env)
    assert late.code == 1
    assert "device-side assert" in late.err
    raised = next(event for event in Recording.open(tmp_path / "late").events if event["kind"] == "exception")
    assert raised["source"]["line"] != line("# HERE")
    blocked = cli("run", "--blocking", "--record", "blocked", "train.py", cwd=tmp_path, env=env)
    assert blocked.code == 1
    finding = diagnose(Recording.open(tmp_path / "blocked"))[0]
    assert finding.source is not None
    assert (finding.source.line, finding.step) == (line("# HERE"), 5)


@pytest.mark.slow
def test_blocking_can_begin_amid_a_script_and_reaches_the_backward_pass(foundry: Foundry, tmp_path: Path) -> None:
    script = SCRIPT.replace("ids[2, 3] = 12 if step == 5 else 1", "ids[2, 3] = 1").replace(
        "    loss.backward()\n",
        "    if step == 3:\n        import tensonde; tensonde.launch_blocking()\n"
        "        standin.ext.fail_at('aten::embedding_dense_backward', False)\n    loss.backward()  # BACK\n",
    )
    ran = foundry.watched(script, tmp_path, env={"STANDIN_DELAY": "20"})
    assert ran.code == 1
    raised = next(event for event in ran.recording.events if event["kind"] == "exception")
    marked = next(k for k, text in enumerate(script.splitlines(), 1) if "# BACK" in text)
    assert (raised["source"]["line"], raised["step"], raised["phase"]) == (marked, 3, "backward")


@pytest.mark.slow
@pytest.mark.parametrize("lost", [False, True])
def test_a_late_error_is_traced_to_its_op(foundry: Foundry, tmp_path: Path, lost: bool) -> None:
    """By running the step again, unless the device is lost, as CUDA's is."""
    script = SCRIPT.replace("for step in range(8):", f"standin.ext.set_sticky({lost})\nfor step in range(8):")
    ran = foundry.watched(script, tmp_path, budget=0.05, env={"STANDIN_DELAY": "20"})
    assert ran.code == 1
    finding = diagnose(ran.recording)[0]
    assert finding.rule == "late-device-error"
    if lost:
        assert "--blocking" in finding.advice
    else:
        marked = next(k for k, text in enumerate(script.splitlines(), 1) if "# HERE" in text)
        assert finding.source is not None
        assert (finding.source.line, finding.op) == (marked, "embedding")
        assert "step 5" in finding.title
        assert "index out of range" in finding.advice
