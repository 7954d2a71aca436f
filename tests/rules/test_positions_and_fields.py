"""Targets at other positions, a field of other samples, a wrong sign, an evaluation at chance: each is named by an experiment, near misses are left alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from silent_trainings import marked, training
from test_silent_bugs import findings

from launch import Foundry
from tensonde.experiments import held_out
from tensonde.experiments.held_out import Evaluation

STEP = """
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TAGS = (
    """
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 16)
        self.rnn = nn.GRU(16, 16, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 3)

    def forward(self, tokens):
        return self.head(self.rnn(self.table(tokens))[0])


tokens = torch.randint(1, 9, (256, 12))
tags = tokens % 3
model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(60):
    index = torch.randint(0, 256, (32,))
    inputs = tokens[index]
    labels = tags[index]
    loss = F.cross_entropy(model(inputs).reshape(-1, 3), labels.reshape(-1))
"""
    + STEP
)
ECHO = TAGS.replace("tags = tokens % 3", "tags = tokens.roll(2, 1)").replace("3)", "9)")
VALUES = (
    """
import random
obs, later = torch.randn(400, 6), torch.randn(400, 6)
rewards, ends = later[:, 0] - later[:, 1], (later[:, 2] > 0).float()
model, target = nn.Linear(6, 1), nn.Linear(6, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(240):
    index = torch.randint(0, 400, (32,))
    now, then, done = obs[index], later[index], ends[index]
    gained = rewards[index]
    with torch.no_grad():
        wanted = gained + 0.9 * target(then).squeeze(1) * (1 - done)
    loss = F.mse_loss(model(now).squeeze(1), wanted)
    if step % 40 == 39:
        target.load_state_dict(model.state_dict())
"""
    + STEP
)
EPISODES = (
    """
class Near(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, shots, asked):
        z = self.body(torch.cat([shots, asked]))
        apart = (z[len(shots):, None] - z[None, :len(shots)]).pow(2).sum(-1)
        return -apart


model = Near()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(200):
    centres = 2 * torch.randn(5, 8)
    labels = torch.arange(5).repeat_interleave(6)
    shots = centres + 0.3 * torch.randn(5, 8)
    asked = centres[labels] + 0.3 * torch.randn(30, 8)
    loss = F.cross_entropy(model(shots, asked), labels)
"""
    + STEP
)
LIKES = """
class Likes(nn.Module):
    def __init__(self):
        super().__init__()
        self.people, self.things = nn.Embedding(240, 8), nn.Embedding(80, 8)

    def forward(self, people, things):
        return (self.people(people) * self.things(things)).sum(-1)


people = torch.arange(240).repeat(12)
things = (people * 7 + 4 * torch.randint(0, 20, people.shape)) % 80
model = Likes()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
for step in range(240):
    index = torch.randint(0, len(people), (128,))
    who, chosen = people[index], things[index]
    other = torch.randint(0, 80, (128,))
    loss = F.softplus(model(who, other) - model(who, chosen)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 59:
        model.eval()
        with torch.no_grad():
            everyone = torch.arange(240)
            best = model(everyone[:, None].expand(-1, 80), torch.arange(80)[None].expand(240, -1)).topk(8, 1).indices
            wanted = (everyone * 7) % 80
            hits = (best == wanted[:, None]).any(1).float().mean()
        model.train()
"""
BUGS = {
    "labels two positions on": (
        "targets-at-other-positions",
        TAGS.replace("labels = tags[index]", "labels = torch.cat([tags[index][:, 2:], tags[index][:, :2]], 1)  # HERE"),
    ),
    "rewards of other transitions": (
        "field-of-other-samples",
        VALUES.replace(
            "gained = rewards[index]", "gained = torch.tensor(random.sample(rewards[index].tolist(), 32))  # HERE"
        ),
    ),
    "far is taken for near": ("nothing-learnt", EPISODES.replace("return -apart", "return apart + 0.0  # HERE")),
    "what is wanted in an evaluation has other numbers": (
        "evaluated-at-chance",
        LIKES.replace("(everyone * 7) % 80", "((everyone * 7) % 80)[torch.randperm(240)]").replace(
            ".any(1).float().mean()", ".any(1).float().mean()  # HERE"
        ),
    ),
}
FEW = LIKES.replace("torch.arange(240).repeat(12)", "torch.arange(60).repeat(48)").split("    if step % 60")[0]
ROWS = (
    """
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(200):
    index = torch.randint(0, 256, (32,))
    inputs = x[index]
    labels = y[index]
    loss = F.cross_entropy(model(inputs), labels)
"""
    + STEP
)
BUGS |= {
    "opposites of what was chosen": (
        "opposites-of-the-chosen",
        FEW.replace("other = torch.randint(0, 80, (128,))", "other = (who * 7 + 4 * torch.randint(0, 20, who.shape)) % 80  # HERE"),
    ),
    "labels laid out column by column": (
        "targets-in-another-order", ROWS.replace("labels = y[index]", "labels = torch.from_numpy(y[index].numpy().reshape(4, 8).T.reshape(-1).copy())  # HERE")
    ),
}  # fmt: skip
NEAR_MISSES = {
    "opposites of all things": FEW,
    "rows as they are": ROWS,
    "tags of their own tokens": TAGS,
    "tokens are to be remembered": ECHO,
    "rewards of their transitions": VALUES,
    "rewards that nobody can foresee": VALUES.replace("later[:, 0] - later[:, 1],", "torch.randn(400),"),
    "near is near": EPISODES,
    "what is wanted is found": LIKES,
}


@pytest.mark.parametrize("name", BUGS)
def test_what_is_amiss_is_named(foundry: Foundry, tmp_path: Path, name: str) -> None:
    rule, body = BUGS[name]
    script = training(body)
    found = findings(foundry.watched(script, tmp_path, experiments=2.0))
    assert rule in [finding.rule for finding in found[:3]], [f"{finding.rule}: {finding.title}" for finding in found]
    finding = next(finding for finding in found if finding.rule == rule)
    assert finding.source is not None
    assert finding.source.line == marked(script), finding


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_is_left_alone(foundry: Foundry, tmp_path: Path, name: str) -> None:
    found = findings(foundry.watched(training(NEAR_MISSES[name]), tmp_path, experiments=2.0))
    assert not found, [f"{finding.rule}: {finding.title} {finding.evidence}" for finding in found]


def test_labels_that_are_left_out_do_not_hide_the_others() -> None:
    draw = np.random.default_rng(3)
    targets = draw.integers(0, 4, 300)
    said = np.where(draw.random(300) < 0.7, targets, draw.integers(0, 4, 300))
    targets[::3] = -100
    told = held_out.answer(Evaluation(9, said, targets, None, None, None, None), [])
    assert told.healthy
    assert told.numbers["stands"] > 7
