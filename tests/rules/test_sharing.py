"""Layers that are held or used in several places, and layers without an activation between them."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

CONVS = """
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
            self.norm = nn.BatchNorm1d(8)  # HERE
            self.act = nn.ReLU()
        def forward(self, x):
            {body}
    model = Deep()
    train(model, torch.optim.SGD(model.parameters(), lr=0.05))
"""

BUGS = {
    "heads of one layer": (
        "one-layer-held-several-times",
        """
        class Heads(nn.Module):
            def __init__(self):
                super().__init__()
                self.trunk = nn.Linear(8, 16)
                head = nn.Linear(16, 3)
                self.heads = nn.ModuleList([head for _ in range(3)])  # HERE
            def forward(self, x):
                hidden = self.trunk(x).relu()
                return sum(head(hidden) for head in self.heads)
        model = Heads()
        train(model, torch.optim.SGD(model.parameters(), lr=0.05))
    """,
    ),
    "a stack that is multiplied": (
        "one-layer-held-several-times",
        """
        model = nn.Sequential(
            nn.Linear(8, 16),
            *[nn.Linear(16, 16), nn.ReLU()] * 3,  # HERE
            nn.Linear(16, 3),
        )
        train(model, torch.optim.SGD(model.parameters(), lr=0.05))
    """,
    ),
    "one norm behind two layers": (
        "batch-norm-shared-by-layers",
        CONVS.format(body="return self.head(self.act(self.norm(self.two(self.act(self.norm(self.one(x)))))))"),
    ),
    "activation never called": (
        "no-activation-between-layers",
        """
        class Deep(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two, self.act = nn.Linear(8, 16), nn.Linear(16, 3), nn.ReLU()
            def forward(self, x):
                x = self.one(x)  # HERE
                return self.two(x)
        model = Deep()
        train(model, torch.optim.SGD(model.parameters(), lr=0.05))
    """,
    ),
    "activation never called in a loop": (
        "no-activation-between-layers",
        """
        class Deep(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 3)])
                self.norms = nn.ModuleList([nn.BatchNorm1d(16), nn.BatchNorm1d(16), nn.Identity()])
                self.act = nn.GELU()
            def forward(self, x):
                for layer, norm in zip(self.layers, self.norms):
                    x = norm(layer(x))  # HERE
                return x
        model = Deep()
        train(model, torch.optim.SGD(model.parameters(), lr=0.05))
    """,
    ),
    "activation thrown away": (
        "no-activation-between-layers",
        """
        class Deep(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 3)
            def forward(self, x):
                x = self.one(x)
                F.relu(x)  # HERE
                return self.two(x)
        model = Deep()
        train(model, torch.optim.SGD(model.parameters(), lr=0.05))
    """,
    ),
    "copies of a layer that takes time first": (
        "batch-and-time-exchanged",
        """
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)  # HERE
                self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 3)
            def forward(self, x):
                return self.head(self.encoder(x[:, None].repeat(1, 5, 1))[:, 0])
        model = Words()
        train(model, torch.optim.SGD(model.parameters(), lr=0.05))
    """,
    ),
}

NEAR_MISSES = {
    "one layer in a loop": """
        class Loop(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.layer, self.head = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 3)
                self.layers = nn.ModuleList([self.layer] * 3)
            def forward(self, x):
                x = self.first(x)
                for layer in self.layers:
                    x = x + layer(x).relu()
                return self.head(x)
        model = Loop()
        train(model, torch.optim.SGD(model.parameters(), lr=0.05))
    """,
    "one norm of two branches through the same layer": CONVS.format(
        body="a, b = (self.act(self.norm(self.one(part))) for part in (x, -x)); return self.head(self.two(a).relu() + b)"
    ),
    "one norm of two branches beside each other": CONVS.format(
        body="return self.head(self.act(self.norm(self.one(x)) * self.norm(self.two(x))))"
    ),
    "low rank": """
        class Low(nn.Module):
            def __init__(self):
                super().__init__()
                self.down, self.up, self.act = nn.Linear(8, 2), nn.Linear(2, 3), nn.ReLU()
            def forward(self, x):
                return self.up(self.down(x))
        model = Low()
        train(model, torch.optim.SGD(model.parameters(), lr=0.05))
    """,
    "linear on purpose": """
        model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 3))
        train(model, torch.optim.SGD(model.parameters(), lr=0.05))
    """,
    "activation in place": """
        class Deep(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 3)
            def forward(self, x):
                x = self.one(x)
                F.relu(x, inplace=True)
                return self.two(x)
        model = Deep()
        train(model, torch.optim.SGD(model.parameters(), lr=0.05))
    """,
}


@pytest.mark.parametrize("name", BUGS)
def test_it_is_named(foundry: Foundry, tmp_path: Path, name: str) -> None:
    rule, body = BUGS[name]
    script = training(body)
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    first = diagnose(ran.recording)[0]
    assert (first.rule, first.severity) == (rule, "error")
    assert first.source is not None
    assert first.source.line == marked(script)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_is_left_alone(foundry: Foundry, tmp_path: Path, name: str) -> None:
    ran = foundry.watched(training(NEAR_MISSES[name]), tmp_path)
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    assert [finding.title for finding in diagnose(ran.recording) if finding.severity != "info"] == []
