"""A teacher that a function gives ready, frozen and in train mode: the line where the program gets it."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

DISTILLED = """
    def trained():
        net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
        train(net, torch.optim.SGD(net.parameters(), lr=0.05), 80)
        return net
    {get}
    for p in teacher.parameters():
        p.requires_grad_(False)
    student = nn.Linear(8, 3)
    def distil(out, index):
        with torch.no_grad():
            soft = teacher(x[index] + 1).softmax(1)
        return F.kl_div(out.log_softmax(1), soft, reduction="batchmean")
    train(student, torch.optim.SGD(student.parameters(), lr=0.05), 40, target=torch.arange(256), loss=distil)
"""


@pytest.mark.parametrize("get", ["teacher = trained()  # HERE", "teacher = trained().eval()"])
def test_the_line_that_gets_it(foundry: Foundry, tmp_path: Path, get: str) -> None:
    script = training(DISTILLED.replace("{get}", get))
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    found = [finding for finding in diagnose(ran.recording) if finding.severity != "info"]
    line = marked(script)
    if line is None:
        assert found == []
    else:
        assert found[0].rule == "frozen-batch-norm-drifts"
        assert found[0].source is not None
        assert found[0].source.line == line
