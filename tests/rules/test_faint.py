"""Signals that are too faint: weights that begin too small, inputs that are divided by 255 twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

DEEP = """
    def begin(m):
        if isinstance(m, nn.Linear):
            {fill}
            nn.init.zeros_(m.bias)
    model = nn.Sequential(nn.Linear(8, 16), {norm}nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(),
                          nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)).apply(begin)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), 60)
"""
SMALL = "nn.init.normal_(m.weight, std=0.01)  # HERE"
IMAGES = """
    images = (torch.rand(256, 8) * 255).byte()
    images[0] = 255
    y = (images[:, 0] > 128).long()
    def load(index):
        return images[index].float() / 255
    def prepare(batch):
        {prepare}
    {net}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(50):
        index = torch.arange(16) + 4 * step
        optimizer.zero_grad()
        F.cross_entropy(model(prepare(load(index))), y[index]).backward()
        optimizer.step()
"""
NET = "model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))"
SCALING = """class Scaling(nn.Sequential):
        def forward(self, batch):
            return super().forward({given})
    model = Scaling(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))"""
NORMED = "model = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))"

BUGS = {
    "small": ("weights-begin-out-of-scale", DEEP.format(fill=SMALL, norm="")),
    "twice": ("inputs-scaled-away", IMAGES.format(prepare="return batch / 255.0  # HERE", net=NET)),
    "twice, in the model": (
        "inputs-scaled-away",
        IMAGES.format(
            prepare="return batch", net=SCALING.format(given="batch / 255)  # HERE").replace("HERE)", "HERE")
        ),
    ),
}
ADAPTERS = """
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.down, self.up = nn.Linear(8, 8), nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)
            self.base.requires_grad_(False)
            nn.init.zeros_(self.up.weight)
        def forward(self, x):
            return x + torch.tanh(self.base(x) + self.up(self.down(x)))
    model = nn.Sequential(*[Adapted() for _ in range(3)], nn.Linear(8, 3).requires_grad_(False))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for step in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(512, 8)), torch.randint(0, 3, (512,))).backward()
        optimizer.step()
"""
NEAR_MISSES = {
    "by the number of inputs": DEEP.format(fill="nn.init.kaiming_normal_(m.weight, nonlinearity='relu')", norm=""),
    "adapters that begin at zero, and nothing to learn": ADAPTERS,
    "divided in the model, by little": IMAGES.format(prepare="return batch", net=SCALING.format(given="batch / 2")),
    "once": IMAGES.format(prepare="return batch", net=NET),
    "twice, and normalised": IMAGES.format(prepare="return batch / 255.0", net=NORMED),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_faint_signal_is_named(foundry: Foundry, tmp_path: Path, name: str) -> None:
    rule, body = BUGS[name]
    script = training(body)
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    first = diagnose(ran.recording)[0]
    assert first.rule == rule
    assert first.source is not None
    assert first.source.line == marked(script)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_clear_one_is_left_alone(foundry: Foundry, tmp_path: Path, name: str) -> None:
    ran = foundry.watched(training(NEAR_MISSES[name]), tmp_path)
    assert ran.code == 0, ran.err
    assert [finding.title for finding in diagnose(ran.recording) if finding.severity != "info"] == []
