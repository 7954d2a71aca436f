"""Trainings with one bug each, on the CPU and on the stand-in: the first finding is the same, at the same line."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry, Ran
from tensonde.diagnose.diagnose import diagnose

pytestmark = pytest.mark.usefixtures("standin")

PRELUDE = f"""
import sys; sys.path.append({str(Path(__file__).parent)!r})
import torch
from torch import nn
device = sys.argv[1]
if device != "cpu":
    import standin

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))

def batch(step):
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(step))
    x[3] *= step != 12
    return x.to(device), (x[:, :4] * 3).argmax(1).to(device)

net = Net().to(device)
"""

LOOP = """
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(40):
    x, y = batch(step)
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

TRAININGS = {
    "a logarithm of what is not positive": PRELUDE
    + """
class Bad(Net):
    def forward(self, x):
        out = super().forward(x)
        return out + torch.log(x[:, :1].abs())  # HERE
net = Bad().to(device)
"""
    + LOOP,
    "a division outside of modules": PRELUDE
    + LOOP.replace(
        "    optimizer.zero_grad()",
        "    weight = x.new_full((1,), 0.0 if step == 9 else 1.0)\n    loss = loss / weight.sum()  # HERE\n    optimizer.zero_grad()",
    ),
    "gradients of a root at zero": PRELUDE
    + LOOP.replace(
        "    optimizer.zero_grad()",
        "    loss = loss + torch.sqrt((net.first.weight[0] * (0.0 if step == 7 else 1.0)).square().sum())  # HERE\n    optimizer.zero_grad()",
    ),
    "a rate that is too large": PRELUDE
    + LOOP.replace("torch.optim.Adam(net.parameters(), lr=1e-2)", "torch.optim.SGD(net.parameters(), lr=3e4)"),
    "gradients that are never cleared": PRELUDE + LOOP.replace("    optimizer.zero_grad()\n", ""),
    "a layer that the optimizer does not know": PRELUDE
    + LOOP.replace("torch.optim.Adam(net.parameters()", "torch.optim.Adam(net.first.parameters()"),
    "a layer that is cut off": PRELUDE.replace(
        "self.last(torch.relu(self.first(x)))", "self.last(torch.relu(self.first(x)).detach())"
    )
    + LOOP,
    "a softmax before the criterion": PRELUDE.replace(
        "return self.last(torch.relu(self.first(x)))", "return torch.softmax(self.last(torch.relu(self.first(x))), 1)"
    )
    + LOOP,
    "nothing": PRELUDE + LOOP,
}

LATE = tuple(name for name, text in TRAININGS.items() if "# HERE" in text)


def found(ran: Ran) -> list[tuple[str, int | None, int | None]]:
    return [
        (finding.rule, finding.source.line if finding.source else None, finding.step)
        for finding in diagnose(ran.recording)
        if finding.severity in ("error", "warning")
    ]


PACES = {
    "at once": ("", "0"),
    "one step behind": ("    loss.item()\n", "300"),
    "far behind": ("", "300"),
}
"""What the loop does at its end, and how many microseconds an op takes."""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "pace"), [(name, pace) for name in TRAININGS for pace in PACES if pace == "at once" or name in LATE]
)
def test_findings_are_those_of_the_cpu(foundry: Foundry, tmp_path: Path, name: str, pace: str) -> None:
    runs = {}
    more, delay = PACES[pace]
    for device in ("cpu", "standin"):
        folder = tmp_path / device
        folder.mkdir()
        env = {"STANDIN_DELAY": delay}
        runs[device] = foundry.watched(TRAININGS[name] + more, folder, argv=[device], budget=0.05, env=env)
        assert runs[device].code == 0, runs[device].err
        assert runs[device].session["failures"] == {}
    there, here = found(runs["standin"]), found(runs["cpu"])
    assert there[:1] == here[:1]
    lines = TRAININGS[name].splitlines()
    marked = [k for k, line in enumerate(lines, 1) if "# HERE" in line]
    if marked:
        assert there[0][1] == marked[0], there
    elif name == "nothing":
        assert there == here == []
    else:
        assert there, "nothing was found, here or there"


def test_a_step_is_run_again_with_the_numbers_that_the_script_had_then(foundry: Foundry, tmp_path: Path) -> None:
    """The device tells of step 5 when the script has set `limit`, and an attribute, for step 6 already."""
    program = (
        PRELUDE
        + """
class Bad(Net):
    scale = 1.0
    def forward(self, x):
        out = super().forward(x) * self.scale
        return out + torch.log(x[:, :1].abs() - limit)  # HERE
net = Bad().to(device)
"""
        + LOOP.replace("range(40)", "range(8)").replace(
            "    x, y = batch(step)",
            "    x, y = batch(step)\n    limit = 100.0 if step == 5 else -1.0\n    net.scale = 1.0 + step",
        )
        + "    loss.item()\n"
    )
    ran = foundry.watched(program, tmp_path, argv=["standin"], budget=0.05, env={"STANDIN_DELAY": "300"})
    assert ran.code == 0, ran.err
    line = next(k for k, text in enumerate(program.splitlines(), 1) if "# HERE" in text)
    assert found(ran)[0][1:] == (line, 5), [one for one in ran.rank.events if "repl" in one["kind"]]
