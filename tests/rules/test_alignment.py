"""Whether what the loss compares belongs together: positions of tokens, images and masks, sizes of outputs and targets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from silent_trainings import marked, training
from test_silent_bugs import findings

from launch import Foundry
from tensonde.diagnose.rules.experiments import learning
from tensonde.experiments import placement
from tensonde.model.facts import AnswerFact

TOKENS = """
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(12, 16)
        self.rnn = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 12)

    def forward(self, tokens):
        return self.head(self.rnn(self.table(tokens))[0])


lines = (torch.randint(0, 12, (256, 1)) + torch.arange(11) * torch.randint(1, 4, (256, 1))) % 12
model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(30):
    rows = lines[torch.randint(0, 256, (16,))]
    tokens, targets = rows[:, :-1], rows[:, 1:]
    scores = model(tokens)
    loss = F.cross_entropy(scores.reshape(-1, 12), targets.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MAPS = """
def scene():
    picture, mask = 0.3 * torch.randn(1, 16, 16), torch.zeros(1, 16, 16)
    top, left = torch.randint(0, 11, (2,)).tolist()
    picture[:, top : top + 5, left : left + 4] += 2
    mask[:, top : top + 5, left : left + 4] = 1
    return picture, mask


scenes = [scene() for _ in range(128)]
pictures, masks = (torch.stack(part) for part in zip(*scenes))
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(50):
    index = torch.randint(0, 128, (16,))
    image, mask = pictures[index], masks[index]
    if step % 2:
        image, mask = image.flip(3), mask.flip(3)
    loss = F.binary_cross_entropy_with_logits(model(image), mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
THOUSANDS = """
prices = (200 * x[:, :1] + 400 + 10 * t) * 1000
scaled = (prices - prices.mean()) / prices.std()
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(120):
    index = torch.randint(0, 256, (32,))
    wanted = scaled[index]
    loss = F.mse_loss(model(x[index]), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
COLUMNS = """
class Places(nn.Module):
    def __init__(self):
        super().__init__()
        self.district, self.kind = nn.Embedding(12, 6), nn.Embedding(4, 3)
        self.head = nn.Linear(9, 3)

    def forward(self, fields):
        parts = [self.district(fields[:, 0]), self.kind(fields[:, 1])]
        return self.head(torch.cat(parts, 1))


fields = torch.stack([torch.randint(0, 12, (256,)), torch.randint(0, 4, (256,))], 1)
model = Places()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(30):
    index = torch.randint(0, 256, (32,))
    chosen = fields[index]
    loss = F.cross_entropy(model(chosen), chosen[:, 1] % 3)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
BUGS = {
    "a column that is taken twice": (
        "input-without-influence",
        COLUMNS.replace("chosen[:, 1] % 3", "y[index]").replace(
            "fields[:, 0]), self.kind(fields[:, 1])]", "fields[:, 1]), self.kind(fields[:, 1])]  # HERE"
        ),
    ),
    "targets of the line before": (
        "compared-with-another-sample",
        TOKENS.replace("rows[:, :-1], rows[:, 1:]", "rows[:, :-1], rows.roll(1, 0)[:, 1:]  # HERE"),
    ),
    "scores with positions first": (
        "compared-with-another-sample",
        TOKENS.replace("scores.reshape(-1, 12), targets.reshape(-1))", "scores.transpose(0, 1).reshape(-1, 12), targets.reshape(-1))  # HERE"),
    ),
    "masks that are not mirrored": (
        "target-misplaced",
        MAPS.replace("image, mask = image.flip(3), mask.flip(3)", "image = image.flip(3)  # HERE"),
    ),
    "prices that are not standardised": (
        "targets-of-another-size",
        THOUSANDS.replace("scaled[index]", "prices[index]  # HERE"),
    ),
}  # fmt: skip
HEALTHY = {
    "a column that is also compared with": COLUMNS,
    "two uses of a column, and one that is left out": COLUMNS.replace("chosen[:, 1] % 3", "y[index]")
    .replace(
        "self.kind = nn.Embedding(12, 6), nn.Embedding(4, 3)", "self.kind = nn.Embedding(12, 8), nn.Embedding(12, 1)"
    )
    .replace("self.kind(fields[:, 1])]", "self.kind(fields[:, 0])]"),
    "a sine and a cosine of a column, and one that is left out": COLUMNS.replace(
        "chosen[:, 1] % 3", "y[index]"
    ).replace(
        "[self.district(fields[:, 0]), self.kind(fields[:, 1])]",
        "[(0.3 * fields[:, :1]).sin().expand(-1, 6), (0.3 * fields[:, :1]).cos().expand(-1, 3)]",
    ),
    "a column that is left out": COLUMNS.replace("chosen[:, 1] % 3", "y[index]").replace(
        "[self.district(fields[:, 0]), self", "[torch.ones(32, 6), self"
    ),
    "tokens": TOKENS,
    "positions first on both sides": TOKENS.replace("scores.reshape", "scores.transpose(0, 1).reshape").replace(
        "targets.reshape", "targets.t().reshape"
    ),
    "masks that are mirrored": MAPS,
    "masks of symmetric things": MAPS.replace("left = torch.randint(0, 11, (2,)).tolist()", "left = 3, 6").replace(
        "image, mask = image.flip(3), mask.flip(3)", "image = image.flip(3)"
    ),
    "the next picture of what moves": """
shapes = (torch.rand(64, 5, 5) > 0.4).float()
frames = torch.zeros(64, 2, 20, 20)
for k in range(64):
    down, right = 6 * (k % 2), 6 * (k // 2 % 2)
    frames[k, 0, 7:12, 7:12] = frames[k, 1, 1 + down : 6 + down, 1 + right : 6 + right] = shapes[k]
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(40):
    index = torch.randint(0, 64, (16,))
    loss = F.binary_cross_entropy_with_logits(model(frames[index, :1]), frames[index, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "damages that are mostly nothing": THOUSANDS.replace("F.mse_loss", "F.l1_loss").replace(
        "scaled[index]", "torch.where(torch.rand(32, 1) < 0.1, prices[index], torch.zeros(32, 1))"
    ),
    "numbers of which little can be known": THOUSANDS.replace(
        "scaled[index]", "torch.randn(32, 1) + 0.01 * scaled[index]"
    ).replace("F.mse_loss(model(x[index])", "F.mse_loss(0.01 * model(x[index])"),
    "prices that are standardised": THOUSANDS,
    "an offset that the last layer has": THOUSANDS.replace("scaled[index]", "prices[index]").replace(
        "optimizer =", "model[2].bias.data.fill_(400_000.0)\noptimizer ="
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_what_does_not_belong_together_is_named(foundry: Foundry, tmp_path: Path, name: str) -> None:
    rule, body = BUGS[name]
    script = training(body)
    found = findings(foundry.watched(script, tmp_path, experiments=4.0))
    assert rule in [finding.rule for finding in found[:3]], [f"{finding.rule}: {finding.title}" for finding in found]
    source = next(finding for finding in found if finding.rule == rule).source
    assert source is not None
    assert source.line == marked(script), source


@pytest.mark.parametrize("name", HEALTHY)
def test_what_belongs_together_is_left_alone(foundry: Foundry, tmp_path: Path, name: str) -> None:
    ran = foundry.watched(training(HEALTHY[name]), tmp_path, experiments=4.0)
    amiss = [
        a for a in ran.rank.facts["answers"] if a["experiment"] in ("companions", "placement") and a["healthy"] is False
    ]
    rules = [finding.rule for finding in findings(ran)]
    assert not amiss
    assert not {rule for _, (rule, _) in BUGS.items()} & set(rules), rules


TRIPLETS = """
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
spread = 4 * torch.eye(8)
for step in range(120):
    own = torch.randint(0, 8, (32,))
    other = (own + torch.randint(1, 8, (32,))) % 8
    said = [model(spread[k] + torch.randn(32, 8)) for k in (own, own, other)]
    loss = F.triplet_margin_loss(*said, margin=3.0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_triplets_that_are_learnt_are_left_alone(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(training(TRIPLETS), tmp_path, experiments=4.0)
    told = [a for a in ran.rank.facts["answers"] if a["experiment"] == "nothing-learnt" and "apart" in a["numbers"]]
    assert told
    assert not any(a["numbers"]["order_matters"] for a in told)
    assert "nothing-learnt" not in [finding.rule for finding in findings(ran)]


def test_maps_are_found_where_they_lie() -> None:
    draw = np.random.default_rng(0)
    maps = np.zeros((32, 1, 16, 16))
    for number in range(32):
        top, left = draw.integers(0, 11, 2)
        maps[number, 0, top : top + 5, left : left + 3] = 1
    images = 2 * maps + 0.3 * draw.standard_normal(maps.shape)
    for turned, way in (
        (maps, ""),
        (maps[..., ::-1], "mirrored left to right"),
        (maps[..., ::-1, :], "upside down"),
        (np.swapaxes(maps, -1, -2), "transposed"),
        (maps[draw.permutation(32)], ""),
    ):
        found = placement._agreement(images, turned)
        assert found is not None
        amiss = {k: n for k in found if k != "as it is" and (n := placement._amiss([found], k)) > 8}
        assert max(amiss, key=amiss.__getitem__, default="") == way, amiss


def _told(step: int, apart: float, samples: int = 64) -> AnswerFact:
    numbers = {"loss": 0.5, "constant": 1.0, "apart": apart, "samples": float(samples)}
    return AnswerFact(experiment="nothing-learnt", step=step, healthy=True, numbers=numbers)


def test_what_is_alike_for_all_samples_is_told_from_what_is_learnt() -> None:
    assert learning._alike([_told(48, 0.3), _told(96, -0.7)])
    assert not learning._alike([_told(48, 0.3)]), "one step"
    assert not learning._alike([_told(48, 0.3), _told(96, 40.0)]), "samples are told apart"
    assert not learning._alike([_told(step, 2.5) for step in (48, 96, 192)]), "in all steps together they are"
    assert not learning._alike([_told(48, 0.3, 8), _told(96, -0.7, 8)]), "few samples"
    same = AnswerFact(experiment="nothing-learnt", step=96, numbers={**_told(96, 0.0).numbers, "order_matters": 0.0})
    assert not learning._alike([_told(48, 0.3), same]), "the loss is the same in any order"


def test_at_chance_everywhere_needs_evaluations() -> None:
    evaluated = [AnswerFact(experiment="held-out", step=step, numbers={"stands": 0.4}) for step in (60, 90)]

    def case(answers: list[AnswerFact]) -> Any:
        return SimpleNamespace(steps=100, facts=SimpleNamespace(answers=answers))

    told = [_told(12, 0.5), _told(48, 1.5)]
    assert learning._nowhere(case(evaluated), told)
    assert not learning._nowhere(case([]), told)
    assert not learning._nowhere(case(evaluated), [*told, _told(96, 9.0)])
    better = [AnswerFact(experiment="held-out", step=90, numbers={"stands": 12.0})]
    assert not learning._nowhere(case(evaluated + better), told)
