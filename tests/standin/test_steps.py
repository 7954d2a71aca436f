"""Trainings on the stand-in: unchanged under Tensonde, and what a step asks of the device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launch import Foundry
from tensonde.store.query import query

pytestmark = pytest.mark.usefixtures("standin")

HERE = Path(__file__).parent
PRELUDE = f"""
import json, os, sys; sys.path.append({str(HERE)!r})
import standin, torch
from torch import nn
torch.manual_seed(0)
device = "standin"

def leave(*modules, **more):
    weights = [p.detach().double().cpu().flatten().tolist() for m in modules for p in m.state_dict().values()]
    json.dump({{"weights": weights, "random": torch.rand(3).tolist(), **more}}, open(os.environ["RESULT"], "w"))
"""

PROGRAMS = {
    "dropout and batch norm": """
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Flatten(), nn.Linear(144, 5)).to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
losses = []
for step in range(20):
    x, y = torch.randn(8, 1, 8, 8).to(device), torch.randint(0, 5, (8,)).to(device)
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
leave(net, losses=losses)
""",
    "two optimizers": """
g, d = nn.Linear(4, 6).to(device), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
og, od = torch.optim.Adam(g.parameters(), 1e-2), torch.optim.Adam(d.parameters(), 1e-2)
for step in range(12):
    real = torch.randn(5, 6, device=device)
    fake = g(torch.randn(5, 4, device=device))
    od.zero_grad()
    (nn.functional.softplus(-d(real)).mean() + nn.functional.softplus(d(fake.detach())).mean()).backward()
    od.step()
    og.zero_grad()
    nn.functional.softplus(-d(fake)).mean().backward()
    og.step()
leave(g, d)
""",
    "by hand": """
net = nn.Linear(4, 3).to(device)
for step in range(10):
    x, y = torch.randn(6, 4, device=device), torch.randn(6, 3, device=device)
    net.zero_grad()
    (net(x) - y).square().mean().backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.1 * p.grad
leave(net)
""",
    "bfloat16 and checkpointing": """
from torch.utils.checkpoint import checkpoint
body, head = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)).to(device).bfloat16(), nn.Linear(8, 2).to(device)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1, momentum=0.9)
for step in range(10):
    x = torch.randn(6, 8, device=device)
    optimizer.zero_grad()
    head(checkpoint(body, x.bfloat16(), use_reentrant=False).float()).square().mean().backward()
    optimizer.step()
leave(body, head)
""",
    "another stream and device": """
first, second = nn.Linear(4, 8).to("standin:0"), nn.Linear(8, 2).to("standin:1")
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
side = torch.Stream(device="standin:0")
for step in range(10):
    x = torch.randn(6, 4, device="standin:0")
    optimizer.zero_grad()
    with side:
        h = first(x)
    torch.accelerator.current_stream().wait_stream(side)
    second(torch.relu(h).to("standin:1")).square().mean().backward()
    optimizer.step()
leave(first, second)
""",
    "autocast and a scaler": """
net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)).to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("standin", init_scale=2.0**20)  # the first steps overflow, and are left out
for step in range(14):
    x, y = torch.randn(8, 8, device=device), torch.randint(0, 4, (8,)).to(device)
    with torch.autocast("standin", dtype=torch.float16):
        out = net(x)
        loss = nn.functional.cross_entropy(out, y)
    assert out.dtype is torch.float16
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
leave(net, scale=scaler.get_scale())
""",
    "channels last and a pinned loader": """
data = torch.utils.data.TensorDataset(torch.randn(48, 3, 8, 8), torch.randint(0, 5, (48,)))
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
net = net.to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for epoch in range(2):
    for x, y in torch.utils.data.DataLoader(data, 8, shuffle=True, pin_memory=True):
        assert x.is_pinned()
        x = x.to(device, non_blocking=True, memory_format=torch.channels_last)
        loss = nn.functional.cross_entropy(net(x), y.to(device, non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
leave(net)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("budget", [None, 0.05])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_training_is_bit_identical(foundry: Foundry, tmp_path: Path, name: str, budget: float | None) -> None:
    env = {"STANDIN_DELAY": "50"}
    (tmp_path / "bare").mkdir()
    (tmp_path / "watched").mkdir()
    bare = foundry.bare(PRELUDE + PROGRAMS[name], tmp_path / "bare", env=env)
    assert bare.code == 0, bare.err
    ran = foundry.watched(PRELUDE + PROGRAMS[name], tmp_path / "watched", budget=budget, env=env)
    assert ran.code == 0, ran.err
    assert ran.result == bare.result
    assert ran.session["failures"] == {}
    steps = {row["step"] for row in ran.rows if row["address"].endswith(":grad")}
    skipped = {step for step, _ in ran.scalars("skipped")}  # by the scaler, so that no optimizer has stepped
    assert steps | skipped >= set(range(ran.session["steps"] - 1)), "gradients of every step are recorded"


def test_sites_have_their_device(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(PRELUDE + PROGRAMS["another stream and device"], tmp_path)
    assert ran.code == 0, ran.err
    devices = {site.address: site.device for site in ran.rank.sites.values()}
    assert {devices[f"first.{name}"] for name in ("weight:value", "weight:grad", "bias:value")} == {"standin:0"}
    assert {devices[f"second.{name}"] for name in ("weight:value", "weight:grad", "bias:value")} == {"standin:1"}
    assert (devices["first:out"], devices["second:out"], devices["loss:value"]) == (
        "standin:0",
        "standin:1",
        "standin:1",
    )
    found = query(ran.recording, "SELECT DISTINCT device FROM sites ORDER BY device").to_pylist()
    assert found == [{"device": "standin:0"}, {"device": "standin:1"}]


COUNTED = (HERE / "counted.py").read_text()


def counts(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads([line for line in out.splitlines() if line.startswith("{")][-1])
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("model", ["cnn", "mlp", "gpt"])
def test_a_step_waits_for_nothing(foundry: Foundry, tmp_path: Path, model: str) -> None:
    """Steps after the first two, which is traced and after which buffers grow."""
    env = {"PYTHONPATH": f"{HERE.parent.parent / 'src'}:{HERE}"}
    text = f"import sys; sys.path.append({str(HERE)!r})\n{COUNTED.replace('from __future__ import annotations', '')}"
    seen = {}
    for way in ("bare", "sentinel", "everything"):
        (tmp_path / way).mkdir()
        if way == "bare":
            ran = foundry.bare(text, tmp_path / way, argv=[model, "12"], env=env)
        else:
            budget = 0.0 if way == "sentinel" else None
            ran = foundry.watched(text, tmp_path / way, argv=[model, "12"], env=env, budget=budget)
        assert ran.code == 0, ran.err
        seen[way] = counts(ran.out)
    bare, sentinel, everything = seen["bare"], seen["sentinel"], seen["everything"]
    assert bare["loss"] == sentinel["loss"] == everything["loss"]
    for watched in (sentinel, everything):
        assert watched.get("synchronisations", {"largest": 0})["largest"] == 0
        assert watched.get("host_reads", {"largest": 0})["largest"] == 0
        assert watched["copies_to_host"]["median"] == 1
    assert sentinel["launches"]["median"] - bare["launches"]["median"] <= 45
    sites = {"cnn": 5 + 1, "mlp": 17 + 1, "gpt": 4 * 9 + 5 + 1}[model]
    assert everything["launches"]["median"] - sentinel["launches"]["median"] <= 2 * sites + 45
