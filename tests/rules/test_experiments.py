"""Experiments on tiny trainings: what is amiss is named, near misses are left alone, and the weights are those of the bare run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from silent_trainings import marked, training
from test_silent_bugs import findings

from launch import Foundry, cli
from tensonde.diagnose.rules.experiments import learning
from tensonde.experiments import nothing_learnt, pairs
from tensonde.experiments.experiment import Answer, Experiment, Inquiry
from tensonde.model.facts import AnswerFact
from tensonde.model.site import SourceLine

LOOP = """
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(80):
    index = torch.randint(0, 256, (32,))
    inputs, labels = x[index], y[index]
"""
STEP = """
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TD = """
model, target = Net(), Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(30):
    index = torch.randint(0, 256, (32,))
    obs, actions, rewards, later = x[index], y[index], t[index, 0], x[torch.randint(0, 256, (32,))]
    values = model(obs).gather(1, actions[:, None]).squeeze(1)
    with torch.no_grad():
        best = target(later).max(dim=1).values
"""

FOLLOW = """
def follow(average, model):
    with torch.no_grad():
        for a, b in zip(average.parameters(), model.parameters()):
            a.mul_(0.9).add_(b, alpha=0.1)
"""

TOKENS = """
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(12, 16)
        self.rnn = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 12)

    def forward(self, tokens):
        return self.head(self.rnn(self.table(tokens))[0])


class Squeezed(Reader):
    def forward(self, tokens):
        state = self.rnn(self.table(tokens))[1][0]
        return self.head(state[:, None, :] * torch.linspace(0.5, 1.5, tokens.shape[1])[:, None])


model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(30):
    ids = (torch.randint(0, 12, (16, 1)) + torch.arange(11) * torch.randint(1, 4, (16, 1))) % 12
"""
LEARN = """
    loss = F.cross_entropy(model(tokens).reshape(-1, 12), targets.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

WINDOWS = """
waves = torch.sin(torch.arange(400) * 0.3) + 0.1 * torch.randn(400)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(30):
    start = torch.randint(0, 380, (32, 1))
    past = waves[start + torch.arange(8)]
"""
TWO = (
    """
class Both(Net):
    def __init__(self):
        super().__init__()
        self.second = nn.Linear(16, 1)

    def forward(self, x):
        h = self.encoder(x)
        return self.head(h), self.second(h)
"""
    + LOOP.replace("Net()", "Both()").replace("range(80)", "range(220)")
    + """
    values = t[index]
    scores, guess = model(inputs)
"""
)
CLOUDS = """
class Points(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, points):
        return self.layers(points)


def cloud():
    tilt = 0.8 * torch.randn(1)
    points = torch.randn(24, 3) + torch.stack([0 * tilt, 0 * tilt, 4 * tilt], 1)
    side = (points[:, 0] + tilt > 0).long()
    mixed = torch.randperm(24)
    return points[mixed], side[mixed]


def batches():
    for _ in range(110):
        chosen = [cloud() for _ in range(16)]
        yield torch.stack([points for points, _ in chosen]), torch.stack([side for _, side in chosen])


model = Points()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for points, side in batches():
    loss = F.cross_entropy(model(points).transpose(1, 2), side)
"""
SIDES = """
class Side(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8 + 1, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, x, side):
        return self.layers(torch.cat([x, side], 1))


model = Side()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(30):
    index = torch.randperm(256)[:32]
    loss = F.cross_entropy(model(x[index], t[index]), y[index])
"""
FILLED = """
class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8, padding_idx=0)
        self.head = nn.Linear(9, 2)

    def forward(self, words, size):
        kept = (words == 0).float().unsqueeze(-1)
        mean = (self.table(words) * kept).sum(1) / kept.sum(1).clamp(min=1)  # HERE
        return self.head(torch.cat([mean, size], 1))


texts = torch.randint(1, 20, (256, 10)) * (torch.arange(10) < torch.randint(4, 11, (256, 1)))
kinds = (texts[:, 0] > 9).long()
model = Bag()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(30):
    index = torch.randint(0, 256, (32,))
    words, labels, size = texts[index], kinds[index], t[index]
    loss = F.cross_entropy(model(words, size), labels)
"""

OWN = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return FORWARD

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        g = BACKWARD
        return g @ w.T, x.T @ g  # HERE


class Gated(Net):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(0.3 * torch.randn(16, 16))

    def forward(self, x):
        return self.head(Own.apply(self.encoder(x), self.w))


model = Gated()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(30):
    index = torch.randint(0, 256, (32,))
    inputs, labels = x[index], y[index]
    loss = F.cross_entropy(model(inputs), labels)
"""
NORMED = (
    """
class Normed(Net):
    def __init__(self, momentum):
        super().__init__()
        self.encoder = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16, momentum=momentum)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return self.head(self.drop(F.relu(
            self.norm(self.encoder(20 + 5 * x)))))  # HERE
"""
    + LOOP.replace("Net()", "Normed(0.1)").replace("range(80)", "range(110)")
    + "    loss = F.cross_entropy(model(inputs), labels)"
    + STEP
    + "    if step % 40 == 39:\n        model.eval()\n        with torch.no_grad():\n            model(x)\n        model.train()\n"
)


def own(forward: str, backward: str) -> str:
    return OWN.replace("FORWARD", forward).replace("BACKWARD", backward) + STEP


WIDE = """
class Wide(Net):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 64)
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        return self.head(F.relu(self.body(self.encoder(x))))


def frozen(model):
    for p in model.body.parameters():
        p.requires_grad = False  # HERE
    return model

"""
FROZEN = (
    WIDE
    + LOOP.replace("Net()", "frozen(Wide())").replace("range(80)", "range(30)")
    + "    loss = F.cross_entropy(model(inputs), labels)"
    + STEP
)

LOADED = """
from torch.utils.data import DataLoader, TensorDataset
class Finder(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(10, 8)
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x, time):
        return self.layers(torch.cat([x, self.time(time)], 1))


levels = torch.linspace(0.1, 0.9, 10)
model = Finder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(15):
    for (clean,) in DataLoader(TensorDataset(x.sin()), batch_size=32):
        time = torch.randint(0, 10, (32,))
        noise = torch.randn(32, 8)
        level = levels[time][:, None]
        noisy = (1 - level) * clean + level * noise
        loss = F.mse_loss(model(noisy, time), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
ACTIONS = """
class Policy(Net):
    def forward(self, x):
        return torch.distributions.Categorical(logits=super().forward(x))


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for step in range(30):
    index = torch.randint(0, 256, (32,))
    chances = policy(x[index])
    action = chances.sample()
    rewards = (action == y[index]).float() - 0.3
    log_probs = chances.log_prob(action)
    loss = -(log_probs * rewards).mean()
"""
FIELDS = """
from torch.utils.data import DataLoader, TensorDataset
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(6):
    for inputs, labels, beside in DataLoader(TensorDataset(x, y, t), batch_size=32, shuffle=True):
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

HALVES = """
class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = nn.Linear(4, 16), nn.Linear(4, 16), nn.Linear(32, 1)

    def forward(self, left, right):
        return self.head(torch.tanh(torch.cat([self.left(left), self.right(right)], 1)))


model = Halves()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(200):
    rows = torch.randperm(256)[:48].tolist()
    left = torch.stack([x[k, :4] for k in rows])
    right = torch.stack([x[k, 4:] for k in rows])  # RIGHT
    wanted = torch.stack([2 * x[k, :1] + x[k, 5:6] for k in rows])
    loss = F.mse_loss(model(left, right), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SIDE_BY_SIDE = HALVES.replace(
    "self.head(torch.tanh(torch.cat([self.left(left), self.right(right)], 1)))",
    "self.head(torch.tanh(self.both(torch.cat([left, right], 1))))",
).replace(
    "self.left, self.right, self.head = nn.Linear(4, 16), nn.Linear(4, 16), nn.Linear(32, 1)",
    "self.both, self.head = nn.Linear(8, 16), nn.Linear(16, 1)",
)
LIKELIHOOD = "F.gaussian_nll_loss(model(left, right), wanted, torch.full_like(wanted, 1e-2))"
COLUMNS = """
table = torch.stack([x[:, 0], x[:, 1], x[:, 2]], 1)  # HERE
model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(60):
    index = torch.randint(0, 256, (32,))
    inputs, labels = table[index], y[index]
    loss = F.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SERIES = """
time = torch.arange(300, dtype=torch.float64)
series = torch.sin(2 * torch.pi * time / 20).float()
table = torch.stack([series[k : k + 256] for k in range(24)], 1)
wanted = series[24:280]
model = nn.Sequential(nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(60):
    index = torch.randint(0, 256, (32,))
    loss = F.mse_loss(model(table[index])[:, 0], wanted[index])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
BUGS = {
    "a mask that lets the next token through, with gradients added up": (
        "future-seen",
        """
        class Reader(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens, self.head, self.qkv = nn.Embedding(20, 16), nn.Linear(16, 20), nn.Linear(16, 48)
            def forward(self, ids):
                q, k, v = self.qkv(self.tokens(ids)).chunk(3, -1)
                hidden = torch.ones(12, 12, dtype=torch.bool).triu(2)  # HERE
                scores = (q @ k.transpose(1, 2) / 4).masked_fill(hidden, float("-inf"))
                return self.head(scores.softmax(-1) @ v)
        model = Reader()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(60):
            optimizer.zero_grad()
            for _ in range(2):
                ids = torch.randint(0, 20, (8, 13))
                logits = model(ids[:, :-1])
                loss = F.cross_entropy(logits.reshape(-1, 20), ids[:, 1:].reshape(-1))
                (loss / 2).backward()
            optimizer.step()
    """,
    ),
    "a sum with the input, compared with the input": (
        "target-is-input",
        """
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(60):
            good = torch.randn(32, 8).cumsum(1)
            bad = good + 0.1 * torch.randn(32, 8)
            loss = F.mse_loss(bad + model(bad), bad)  # HERE
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    ),
    "positions that are mixed apart": (
        "positions-unlearnt",
        CLOUDS.replace("return points[mixed], side[mixed]", "return points[mixed], side  # HERE") + STEP,
    ),
    "samples that meet behind flat linear layers": (
        "samples-mixed",
        CLOUDS.replace("self.layers(points)", "self.layers(points - points.amax(0, keepdim=True))  # HERE") + STEP,
    ),
    "one task whose targets are of other samples": (
        "task-learns-nothing",
        "y = y[torch.randperm(256)]\n"
        + TWO
        + "    task = F.cross_entropy(scores, labels)  # HERE\n    loss = task + F.mse_loss(guess, values)"
        + STEP,
    ),
    "a mask that keeps what is all the same": (
        "targets-masked-to-one-value",
        TWO
        + """
    there = (labels > 0).float()
    wanted = values[:, 0] * there
    error = ((guess[:, 0] - wanted) ** 2 * (1 - there)).sum() / there.sum()  # HERE
    loss = F.cross_entropy(scores, labels) + error
"""
        + STEP,
    ),
    "an input of other rows": (
        "rows-of-other-samples",
        SIDES.replace("t[index]), y[index])", "t[step : step + 32]), y[index])  # HERE") + STEP,
    ),
    "an input of other samples": (
        "input-of-other-samples",
        HALVES.replace("for k in rows])  # RIGHT", "for k in sorted(rows)])  # HERE"),
    ),
    "an input of other samples, in columns of its own": (
        "input-of-other-samples",
        SIDE_BY_SIDE.replace("for k in rows])  # RIGHT", "for k in sorted(rows)])  # HERE"),
    ),
    "an input of other samples, and a loss that falls below 0": (
        "input-of-other-samples",
        SIDE_BY_SIDE.replace("2 * x[k, :1] + x[k, 5:6]", "x[k, :1] + 0.1 * x[k, 5:6]")
        .replace("F.mse_loss(model(left, right), wanted)", LIKELIHOOD)
        .replace("for k in rows])  # RIGHT", "for k in sorted(rows)])  # HERE"),
    ),
    "a column that is taken twice": (
        "columns-equal",
        COLUMNS.replace("x[:, 1], x[:, 2]", "x[:, 1], x[:, 1]"),
    ),
    "one column for all": (
        "columns-equal",
        COLUMNS.replace("x[:, 1], x[:, 2]", "2 * x[:, 0] + 3, 5 * x[:, 0]"),
    ),
    "inputs that are divided twice": (
        "nothing-learnt",
        LOOP.replace("x[index], y[index]", "x[index] / 255, y[index]")
        .replace("inputs, labels", "inputs = x[index] / 255 / 255  # HERE\n    labels")
        .replace("= x[index] / 255, y[index]", "= y[index]")
        .replace("Adam(model.parameters(), lr=1e-2)", "SGD(model.parameters(), lr=0.1)")
        + "    loss = F.cross_entropy(model(inputs), labels)"
        + STEP,
    ),
    "one column of what the model gives, twice": (
        "input-without-influence",
        TWO.replace("return self.head(h), self.second(h)", "return self.head(h)").replace(
            "scores, guess = model(inputs)", "scores = model(inputs)"
        )
        + """
    loss = (scores[:, 0] - values[:, 0]).pow(2).mean() + (scores[:, 0] - inputs[:, 2]).pow(2).mean() + (scores[:, 2] - inputs[:, 3]).pow(2).mean()  # HERE
"""
        + STEP,
    ),
    "a field that nothing takes": (
        "field-never-used",
        FIELDS.replace(
            "loss = F.cross_entropy(model(inputs), labels)", "loss = F.cross_entropy(model(inputs), labels)  # HERE"
        ),
    ),
    "an evaluation on inputs that are not scaled": (
        "evaluated-many-times-larger",
        NORMED.replace("  # HERE", "")
        .replace("range(110)", "range(45)")
        .replace(
            "with torch.no_grad():\n            model(x)", "with torch.no_grad():  # HERE\n            model(x * 255)"
        ),
    ),
    "a time that the model does not look at": (
        "input-without-influence",
        LOADED.replace("x, self.time(time)], 1))", "x, self.time(torch.zeros_like(time))], 1))  # HERE"),
    ),
    "noise that is not in the inputs": (
        "nothing-learnt",
        LOADED.replace(
            "loss = F.mse_loss(model(noisy, time), noise)", "loss = F.mse_loss(model(clean, time), noise)  # HERE"
        ),
    ),
    "rewards with the wrong sign": (
        "rewarded-actions-unlearnt",
        ACTIONS.replace("loss = -(log_probs * rewards).mean()", "loss = (log_probs * rewards).mean()  # HERE") + STEP,
    ),
    "a cross entropy with the wrong sign": (
        "rewarded-actions-unlearnt",
        ACTIONS.replace(
            "-(log_probs * rewards).mean()",
            "-(rewards * F.cross_entropy(chances.logits, action, reduction='none')).mean()  # HERE",
        )
        + STEP,
    ),
    "a distance of normal actions with the wrong sign": (
        "rewarded-actions-unlearnt",
        LOOP
        + """
    spread = torch.distributions.Normal(model(inputs), 1.0)
    action = spread.sample()
    advantages = -action.square().sum(1)
    loss = (spread.log_prob(action).sum(1) * advantages).mean()  # HERE
"""
        + STEP,
    ),
    "rewards with two minuses": (
        "rewarded-actions-unlearnt",
        ACTIONS.replace("loss = -(log_probs * rewards)", "loss = -(log_probs * -rewards)").replace(
            "rewards).mean()", "rewards).mean()  # HERE"
        )
        + STEP,
    ),
    "an action that is drawn anew": (
        "action-drawn-twice",
        ACTIONS.replace("chances.log_prob(action)", "chances.log_prob(chances.sample())  # HERE") + STEP,
    ),
    "a layer that is frozen as it was drawn": ("frozen-at-random-values", FROZEN),
    "a first step that replaces the weights": (
        "first-update-replaces-weights",
        LOOP.replace("for step", "model.encoder[1] = nn.Identity()\nfor step")
        .replace(
            "torch.optim.Adam(model.parameters(), lr=1e-2)", "torch.optim.Adam(model.parameters(), lr=20.0)  # HERE"
        )
        .replace("range(80)", "range(12)")
        + "    loss = model(inputs).exp().mean()"
        + STEP,
    ),
    "a backward with half of its derivative": (
        "gradient-of-own-function-wrong",
        own("(x @ w).tanh()", "g * (1 - (x @ w).tanh())"),
    ),
    "a backward of the wrong sign": (
        "gradient-of-own-function-wrong",
        own("(x @ w).sigmoid()", "g * (x @ w).sigmoid() * ((x @ w).sigmoid() - 1)"),
    ),
    "statistics that hardly move": ("lost-in-eval-mode", NORMED.replace("Normed(0.1)", "Normed(0.0005)")),
    "a window that holds its target": (
        "target-among-inputs",
        WINDOWS
        + "    future = waves[start + torch.arange(6, 8)]  # HERE\n    loss = F.mse_loss(model(past), future)"
        + STEP,
    ),
    "scores that hardly differ": (
        "loss-held-up",
        LOOP
        + "    scores = torch.tanh(model(inputs)) * 0.01  # HERE\n    loss = F.cross_entropy(scores, labels)"
        + STEP,
    ),
    "only padding has an influence": ("input-without-influence", FILLED + STEP),
    "an input that is always the first rows": (
        "rows-never-change",
        LOOP.replace("x[index], y[index]", "x[:32], y[index]  # HERE")
        + "    loss = F.cross_entropy(model(inputs), labels)"
        + STEP,
    ),
    "a term that is detached": (
        "term-without-gradient",
        LOOP
        + "    out = model(inputs)\n    fit = F.cross_entropy(out, labels).detach()  # HERE\n    loss = fit + 1e-3 * out.pow(2).mean()"
        + STEP,
    ),
    "targets two positions on": (
        "target-too-far-on",
        TOKENS + "    tokens, targets = ids[:, :-2], ids[:, 2:]  # HERE" + LEARN,
    ),
    "labels one sample off": (
        "compared-with-another-sample",
        LOOP + "    loss = F.cross_entropy(model(inputs), labels.roll(1))  # HERE" + STEP,
    ),
    "labels in an order of their own": (
        "target-of-another-sample",
        LOOP + "    loss = F.cross_entropy(model(inputs), labels[torch.randperm(32)])  # HERE" + STEP,
    ),
    "its own output as target": (
        "target-is-own-output",
        LOOP + "    out = model(inputs)\n    loss = F.cross_entropy(out, out.argmax(1))  # HERE" + STEP,
    ),
    "an input that is not used": (
        "input-without-influence",
        """
class Timed(Net):
    def forward(self, x, time):
        scaled = time * 0.01  # HERE
        return self.head(self.encoder(x))
"""
        + LOOP.replace("Net()", "Timed()")
        + "    time = torch.rand(32, 1)\n    loss = F.cross_entropy(model(inputs, time), labels)"
        + STEP,
    ),
    "samples that attend to each other": (
        "samples-mixed",
        """
class Mixed(Net):
    def forward(self, x):
        h = self.encoder(x)
        return self.head(h + torch.tanh(h @ h.t()) @ h)  # HERE
"""
        + LOOP.replace("Net()", "Mixed()")
        + "    loss = F.cross_entropy(model(inputs), labels)"
        + STEP,
    ),
    "a bootstrapped target with a gradient": (
        "bootstrap-with-gradient",
        """
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    def loss(out, reward):
        following = model(x[torch.randint(0, 256, (16,))])
        target = reward + 0.9 * following.max(1, keepdim=True).values  # HERE
        return F.smooth_l1_loss(out[:, :1], target)
    train(model, torch.optim.SGD(model.parameters(), lr=0.01), loss=loss, target=t, steps=16)
""",
    ),
    "a subtracted bootstrap": (
        "bootstrap-of-wrong-sign",
        TD + "        goal = rewards - 0.9 * best  # HERE\n    loss = F.mse_loss(values, goal)" + STEP,
    ),
    "a discount above one": (
        "bootstrap-above-one",
        TD + "        goal = rewards + 1.9 * best  # HERE\n    loss = F.mse_loss(values, goal)" + STEP,
    ),
    "trained weights loaded over": (
        "trained-weights-loaded-over",
        "saved = Net()\n"
        + LOOP
        + "    loss = F.cross_entropy(model(inputs), labels)"
        + STEP
        + "    if step % 20 == 19:\n        model.load_state_dict(saved.state_dict())  # HERE\n",
    ),
    "a copy that stays as it is": (
        "average-does-not-follow",
        FOLLOW
        + LOOP.replace("for step", "average = copy.deepcopy(model).eval()\nfor step")
        + "    loss = F.cross_entropy(model(inputs), labels)"
        + STEP
        + "    if step % 20 == 19:\n        with torch.no_grad():\n            average(x)  # HERE\n",
    ),
}

NEAR_MISSES = {
    "two inputs of the same samples": HALVES,
    "two inputs of the same samples, side by side": SIDE_BY_SIDE,
    "what is chosen and what is not, each beside who chooses": SIDE_BY_SIDE.replace("range(200)", "range(120)")
    .replace(
        "F.mse_loss(model(left, right), wanted)",
        "F.softplus(model(left, others) - model(left, right)).mean()",
    )
    .replace(
        "    wanted =",
        "    others = torch.stack([x[k, 4:] for k in torch.randperm(256)[:48].tolist()])\n    right = right + left\n    wanted =",
    ),
    "an input that carries nothing": HALVES.replace(
        "x[k, 4:] for k in rows])  # RIGHT", "noise[k] for k in rows])"
    ).replace("model = Halves()", "noise, model = torch.randn(256, 4), Halves()"),
    "tasks that adapt a copy, with gradients added up": """
        from torch.func import functional_call
        net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))
        optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
        for step in range(40):
            optimizer.zero_grad()
            for _ in range(3):
                a, b = torch.rand(2) + 0.5
                given, asked = torch.rand(10, 1) * 4 - 2, torch.rand(10, 1) * 4 - 2
                params = dict(net.named_parameters())
                support = F.mse_loss(functional_call(net, params, given), a * torch.sin(given + b))
                grads = torch.autograd.grad(support, list(params.values()), create_graph=True)
                fast = {k: v - 0.05 * g for (k, v), g in zip(params.items(), grads)}
                query = F.mse_loss(functional_call(net, fast, asked), a * torch.sin(asked + b))
                (query / 3).backward()
            optimizer.step()
    """,
    "divided losses of a training that has just begun to learn": """
        ids = torch.randint(0, 30, (320, 6))
        kinds = (ids[:, -1] < 15).long()
        embed, body, head = nn.Embedding(30, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 2)
        model = nn.ModuleList([embed, body, head])
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: k / 4 if k < 4 else (40 - k) / 36)
        for k in range(80):
            rows = torch.randperm(320)[:16]
            _, state = body(embed(ids[rows]))
            loss = F.cross_entropy(head(state[-1]), kinds[rows]) / 2
            loss.backward()
            if k % 2:
                optimizer.step()
                schedule.step()
                model.zero_grad()
    """,
    "columns that differ": COLUMNS,
    "windows of a series with a period": SERIES,
    "windows of a series with a trend": SERIES.replace(
        "torch.sin(2 * torch.pi * time / 20).float()", "(time / 150 - 1).float()"
    ),
    "columns of flags that agree": COLUMNS.replace("x[:, 1], x[:, 2]", "(x[:, 1] > 0).float(), (x[:, 1] > 0).float()"),
    "gradients of four batches added up": """
        model = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 20))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(60):
            optimizer.zero_grad()
            for _ in range(4):
                ids = (torch.randint(0, 20, (8, 1)) + 3 * torch.arange(13)) % 20
                logits = model(ids[:, :-1])
                loss = F.cross_entropy(logits.reshape(-1, 20), ids[:, 1:].reshape(-1))
                (loss / 4).backward()
            optimizer.step()
    """,
    "a sum with the input, compared with what is better": """
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(80):
            good = torch.randn(32, 1) * torch.linspace(-1, 1, 8)
            bad = good + 0.5 * torch.randn(32, 8)
            loss = F.mse_loss(bad + model(bad), good)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "positions that belong together": CLOUDS + STEP,
    "fields of the same rows": SIDES + STEP,
    "a second field of the table, of other rows on purpose": SIDES.replace(
        "t[index]), y[index])", "t[index]), y[index])"
    ).replace(
        "    loss = ",
        "    other = torch.randperm(256)[:32]\n    loss = 0.1 * F.cross_entropy(model(x[other], t[other]), y[other]) + ",
    )
    + STEP,
    "two tasks that are learnt, and a penalty": TWO
    + "    loss = F.cross_entropy(scores, labels) + F.mse_loss(guess, values) + 1e-3 * scores.pow(2).mean()"
    + STEP,
    "a mask that keeps what differs": TWO
    + """
    there = (labels > 0).float()
    error = ((guess[:, 0] - values[:, 0] * there) ** 2 * there).sum() / there.sum()
    loss = F.cross_entropy(scores, labels) + error
"""
    + STEP,
    "numbers of samples that nothing takes": FIELDS.replace("(x, y, t)", "(x, y, torch.arange(256))"),
    "an evaluation on a wider range": NORMED.replace("range(110)", "range(45)").replace(
        "            model(x)", "            model(x * 4)"
    ),
    "noise that is to be found": LOADED,
    "actions that are rewarded": ACTIONS + STEP,
    "rewards with a minus before them": ACTIONS.replace("-(log_probs * rewards)", "(-rewards * log_probs)") + STEP,
    "a cross entropy that is weighed by rewards": ACTIONS.replace(
        "-(log_probs * rewards)", "(rewards * F.cross_entropy(chances.logits, action, reduction='none'))"
    )
    + STEP,
    "a squared distance that is weighed by advantages": LOOP
    + "    advantages = torch.randn(32)\n    loss = (advantages.exp() * (model(inputs) - t[index]).pow(2).sum(1)).mean()"
    + STEP,
    "the entropy of actions that are made of noise": LOOP
    + """
    spread = torch.distributions.Normal(model(inputs), 0.5)
    action = spread.rsample()
    loss = (0.1 * spread.log_prob(action) + (action - t[index]).pow(2)).mean()
"""
    + STEP,
    "errors that are weighed by how often they come": LOOP
    + "    weights = torch.rand(32)\n    td_errors = y[index] - model(inputs)[:, 0]\n    loss = (weights * td_errors.pow(2)).mean()"
    + STEP,
    "actions that cost something": ACTIONS.replace(
        "rewards = (action == y[index]).float() - 0.3", "costs = (action != y[index]).float() - 0.3"
    ).replace("loss = -(log_probs * rewards).mean()", "loss = (log_probs * costs).mean()")
    + STEP,
    "a benchmark on random inputs": LOOP.replace("inputs, labels = x[index], y[index]", "inputs = torch.randn(32, 8)")
    + "    labels = torch.randint(0, 3, (32,))\n    loss = F.cross_entropy(model(inputs), labels)"
    + STEP,
    "a frozen layer that the optimizer is not given": FROZEN.replace(
        "model.parameters(), lr", "[p for p in model.parameters() if p.requires_grad], lr"
    ),
    "a frozen layer that was trained before": FROZEN.replace("frozen(Wide())", "Wide()").replace(
        "    optimizer.zero_grad()", "    if step == 10:\n        frozen(model)\n    optimizer.zero_grad()"
    ),
    "a frozen layer with weights of its own": FROZEN.replace(
        "    return model", "    model.body.weight.copy_(torch.eye(16).repeat(4, 1))\n    return model"
    ),
    "a random layer by name": FROZEN.replace("self.body", "self.random_body").replace(
        "model.body", "model.random_body"
    ),
    "a small rate that is slow": LOOP.replace("lr=1e-2", "lr=1e-3")
    + "    loss = F.cross_entropy(model(inputs), labels)"
    + STEP,
    "a right backward": own("(x @ w).tanh()", "g * (1 - (x @ w).tanh() ** 2)"),
    "a straight-through estimator": own("(x @ w * 4).round() / 4", "g"),
    "a bound that gradients pass": own("(x @ w).clamp(-0.5, 0.5)", "g"),
    "a neuron that fires": own("((x @ w) > 0.1).float() + 0.1 * (x @ w)", "g / (1 + (x @ w).abs()) ** 2"),
    "a gradient that is turned round": OWN.replace("FORWARD", "x.clone()")
    .replace("BACKWARD", "-0.5 * g")
    .replace("return g @ w.T, x.T @ g", "return g, None")
    + STEP,
    "statistics that move": NORMED,
    "a window before its target": WINDOWS
    + "    future = waves[start + torch.arange(8, 10)]\n    loss = F.mse_loss(model(past), future)"
    + STEP,
    "an autoencoder that is given a class as well": """
encoder, decoder = nn.Linear(11, 4), nn.Sequential(nn.Linear(7, 16), nn.Tanh(), nn.Linear(16, 8))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
for step in range(30):
    index = torch.randint(0, 256, (32,))
    inputs, kind = x[index], F.one_hot(y[index], 3).float()
    loss = F.mse_loss(decoder(torch.cat([encoder(torch.cat([inputs, kind], 1)), kind], 1)), inputs)
"""
    + STEP,
    "the next value of a sequence": """
rnn, head = nn.GRU(1, 16, batch_first=True), nn.Linear(16, 1)
optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=1e-2)
for step in range(30):
    waves = torch.sin(torch.arange(12) * 0.4 + 6 * torch.rand(16, 1)).unsqueeze(-1)
    loss = F.mse_loss(head(rnn(waves)[0])[:, :-1], waves[:, 1:])
"""
    + STEP,
    "two targets, one mostly noise": TWO
    + "    second = F.mse_loss(guess, values + 4 * torch.randn_like(values))\n"
    + "    loss = F.cross_entropy(scores, labels) + second"
    + STEP,
    "one model that tells right from wrong": LOOP.replace("range(80)", "range(40)").replace("lr=1e-2", "lr=1e-3")
    + "    right, wrong = model(inputs.abs())[:, 0], model(-inputs.abs())[:, 0]\n"
    + "    loss = F.softplus(torch.cat([-right, wrong])).mean()"
    + STEP,
    "soft classes": LOOP
    + "    soft = 0.4 * F.one_hot(labels, 3) + 0.2\n    loss = F.cross_entropy(model(inputs), soft)"
    + STEP,
    "words without their padding": FILLED.replace("words == 0", "words != 0") + STEP,
    "the first rows of everything": LOOP.replace("x[index], y[index]", "x[:32], y[:32]")
    + "    loss = F.cross_entropy(model(inputs), labels)"
    + STEP,
    "few samples that come again and again": LOOP.replace("range(80)", "range(400)").replace("0, 256", "0, 48")
    + "    loss = F.cross_entropy(model(inputs), labels)"
    + STEP,
    "a large rate that works": LOOP.replace(
        "torch.optim.Adam(model.parameters(), lr=1e-2)", "torch.optim.SGD(model.parameters(), lr=1.0)"
    )
    + "    loss = F.cross_entropy(model(inputs), labels)"
    + STEP,
    "a number beside itself without a gradient": LOOP
    + "    fit = F.cross_entropy(model(inputs), labels)\n    loss = fit + (fit - fit.detach())"
    + STEP,
    "the next token": TOKENS + "    tokens, targets = ids[:, :-1], ids[:, 1:]" + LEARN,
    "tokens that all pass one state": TOKENS.replace("model = Reader()", "model = Squeezed()")
    + "    tokens, targets = ids[:, :4], ids[:, :4]"
    + LEARN,
    "a copy as a reference": LOOP.replace("for step", "average = copy.deepcopy(model).eval()\nfor step")
    + "    loss = F.cross_entropy(model(inputs), labels)"
    + STEP
    + "    if step % 20 == 19:\n        with torch.no_grad():\n            average(x)\n",
    "labels that the model takes, and shifts itself": TOKENS.replace("model = Reader()", "model = Taking()").replace(
        "model = ",
        "class Taking(Reader):\n"
        "    def forward(self, tokens, labels):\n"
        "        said = super().forward(tokens)\n"
        "        return F.cross_entropy(said[:, :-1].flatten(0, 1), labels[:, 1:].flatten())\n\n"
        "model = ",
        1,
    )
    + "    tokens = ids[:, :-1]\n    labels = tokens.clone()\n    loss = model(tokens, labels)\n"
    + STEP,
    "a benchmark on random labels": LOOP
    + "    labels = torch.randint(0, 3, (32,))\n    loss = F.cross_entropy(model(inputs), labels)"
    + STEP,
    "a plain training": LOOP + "    loss = F.cross_entropy(model(inputs), labels)" + STEP,
    "labels with much noise": LOOP
    + "    wrong = torch.where(torch.rand(32) < 0.4, torch.randint(0, 3, (32,)), labels)\n"
    + "    loss = F.cross_entropy(model(inputs), wrong)"
    + STEP,
    "mixup": LOOP
    + "    order = torch.randperm(32)\n    out = model(0.7 * inputs + 0.3 * inputs[order])\n"
    + "    loss = 0.7 * F.cross_entropy(out, labels) + 0.3 * F.cross_entropy(out, labels[order])"
    + STEP,
    "a last layer that begins at zero": LOOP.replace("Net()", "Net(); nn.init.zeros_(model.head.weight)")
    + "    loss = F.cross_entropy(model(inputs), labels)"
    + STEP,
    "value learning": TD + "        goal = rewards + 0.9 * best\n    loss = F.mse_loss(values, goal)" + STEP,
    "a contrastive loss": LOOP
    + "    a, b = (F.normalize(model(inputs + 0.1 * torch.randn_like(inputs)), dim=1) for _ in range(2))\n"
    + "    loss = F.cross_entropy(a @ b.t() / 0.2, torch.arange(32))"
    + STEP,
    "a moving average that follows": LOOP.replace("for step", "average = copy.deepcopy(model).eval()\nfor step")
    + "    loss = F.cross_entropy(model(inputs), labels)"
    + STEP
    + """
    with torch.no_grad():
        for a, p in zip(average.parameters(), model.parameters()):
            a.lerp_(p, 0.1)
        if step % 20 == 19:
            average(x)
""",
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


def test_steps_are_asked(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(training(NEAR_MISSES["a plain training"]), tmp_path, experiments=2.0)
    told = {answer["experiment"]: answer["healthy"] for answer in ran.rank.facts["answers"]}
    assert told["nothing-learnt"] is True
    assert told["influence"] is True
    assert told["independence"] is True
    assert told["own-batch"] is True


LIBRARY = """
def fit(model, optimizer, x, y, loss_of):
    for _ in range(14):
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
"""


def test_steps_that_a_library_runs_are_not_asked(foundry: Foundry, tmp_path: Path) -> None:
    """What it means by a target, a field or a loss is its own affair."""
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "fitting.py").write_text(LIBRARY)
    body = "import sys\nsys.path.insert(0, 'site-packages')\nfrom fitting import fit\nmodel = Net()\n"
    body += "fit(model, torch.optim.Adam(model.parameters(), lr=1e-2), x, y, F.cross_entropy)"
    ran = foundry.watched(training(body), tmp_path, experiments=2.0)
    assert ran.code == 0, ran.err
    answers = ran.rank.facts["answers"]
    assert answers
    assert all("a library runs the steps" in answer["why"] for answer in answers)


def test_a_step_that_takes_too_long_is_not_asked(foundry: Foundry, tmp_path: Path) -> None:
    slow = """
import time
class Slow(Net):
    def forward(self, x):
        end = time.thread_time() + 0.6
        while time.thread_time() < end:
            pass
        return super().forward(x)
"""
    ran = foundry.watched(
        training(slow + LOOP.replace("Net()", "Slow()").replace("80", "3") + "    loss = model(inputs).mean()" + STEP),
        tmp_path,
        experiments=2.0,
    )
    assert [a["why"] for a in ran.rank.facts["answers"]] == ["the step takes longer than experiments may"]
    assert ran.session["overhead"]["experiments_seconds"] < 0.1


EVERYTHING = (
    OWN[: OWN.index("class Gated")]
    .replace("FORWARD", "(x @ w).tanh()")
    .replace("BACKWARD", "g * (1 - (x @ w).tanh() ** 2)")
    + """
class Policy(Net):
    def __init__(self):
        super().__init__()
        self.w, self.norm, self.drop = nn.Parameter(0.3 * torch.randn(16, 16)), nn.BatchNorm1d(16), nn.Dropout(0.2)

    def forward(self, x):
        return torch.distributions.Categorical(logits=self.head(self.drop(self.norm(Own.apply(self.encoder(x), self.w)))))


model = Policy()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
for step in range(60):
    index = torch.randint(0, 256, (32,))
    chances = model(x[index])
    action = chances.sample()
    rewards = (action == y[index]).float() - 0.3
    loss = -(chances.log_prob(action) * rewards).mean() - 0.01 * chances.entropy().mean()
"""
    + STEP
)


@pytest.mark.parametrize(
    ("body", "asked_of"),
    [
        (NEAR_MISSES["a plain training"], {"fields", "nothing-learnt", "own-batch"}),
        (EVERYTHING, {"truth", "reward", "own-batch"}),
    ],
    ids=["plain", "everything"],
)
def test_a_plain_run_asks_and_leaves_the_weights_alone(tmp_path: Path, body: str, asked_of: set[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(training(body + "print([p.sum().item() for p in [*model.parameters(), *model.buffers()]])\n"))
    asked = cli("run", "--record", tmp_path / "asked", script, cwd=tmp_path, folder=tmp_path / "asked")
    bare = cli("run", "--no-experiments", "--record", tmp_path / "not", script, cwd=tmp_path, folder=tmp_path / "not")
    assert asked.out == bare.out
    told = {answer["experiment"] for answer in asked.rank.facts["answers"] if answer["healthy"] is not None}
    assert told >= asked_of, asked.rank.facts["answers"]
    assert asked.session["overhead"]["experiments_seconds"] > 0
    assert not bare.rank.facts["answers"]
    assert bare.session["overhead"]["experiments_seconds"] == 0


def _told(step: int, loss: float, apart: float) -> AnswerFact:
    return AnswerFact(
        experiment="nothing-learnt", step=step, healthy=False, numbers={"loss": loss, "constant": 1.0, "apart": apart}
    )


def test_samples_are_learnt_by_heart_only_where_outputs_never_belong_to_them() -> None:
    steps = [12, 24, 48, 96, 192]
    by_heart = [_told(step, 1.1 - step / 700, 1.5) for step in steps]
    assert learning._by_heart(by_heart, 400)
    assert not learning._by_heart([*by_heart[:-1], _told(192, 0.83, 6.0)], 400), "it is learnt in the end"
    assert not learning._by_heart([*by_heart[:-1], _told(192, 0.4, 3.0)], 400), "the loss is low"
    assert not learning._by_heart(by_heart, 4000), "the rest of the training was not asked"
    assert not learning._by_heart([_told(step, 3.0 - step / 100, 1.5) for step in steps], 400), (
        "a constant is still learnt"
    )


def test_experiments_that_had_no_time_come_first_in_the_next_step() -> None:
    order: list[str] = []
    clock = {"left": 1.0}

    def experiment(name: str, costs: float) -> Experiment:
        def ask(step: Any, memory: Any) -> list[Answer]:
            order.append(name)
            clock["left"] -= costs
            return [Answer(True)]

        return Experiment(name, name, ask)

    both = (experiment("dear", 1.0), experiment("cheap", 0.1))
    inquiry = Inquiry()
    for number in (1, 2):
        clock["left"] = 1.0
        step = SimpleNamespace(
            number=number, several=False, loss=0, array=lambda value: 1.0, seconds_left=lambda: clock["left"]
        )
        inquiry.ask(step, both)  # type: ignore[arg-type]
    assert order == ["dear", "cheap", "dear"]


def test_tokens_that_are_copied_are_told_from_those_that_pass_one_state(foundry: Foundry, tmp_path: Path) -> None:
    for number, (model, healthy) in enumerate((("Reader()", False), ("Squeezed()", True))):
        body = TOKENS.replace("model = Reader()", f"model = {model}").replace("range(30)", "range(3)")
        (tmp_path / str(number)).mkdir()
        ran = foundry.watched(
            training(body + "    tokens, targets = ids[:, :4], ids[:, :4]" + LEARN),
            tmp_path / str(number),
            experiments=2.0,
        )
        assert [a["healthy"] for a in ran.rank.facts["answers"] if a["part"] == "copied"] == [healthy]


WIDE = """
class Wide(Reader):
    def forward(self, tokens):
        h = self.table(tokens)
        return self.head(torch.tanh(h + h.mean(1, keepdim=True)))


"""
HIDDEN = """
    chosen = torch.rand(16, 11) < 0.3
    tokens = torch.where(chosen, torch.full_like(ids, 11), ids)
    targets = torch.where(chosen, ids, torch.full_like(ids, -100))
"""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("", ""), []),
        (("tokens = torch.where(chosen, torch.full_like(ids, 11), ids)", "tokens = ids.clone()"), [False]),
        (("torch.where(chosen, ids, torch", "torch.where(chosen, tokens, torch"), []),  # all of them are the mask
        (("torch.full_like(ids, 11), ids)", "ids, ids)"), [False]),
        # Only padding does not count: an autoencoder.
        (("chosen = torch.rand(16, 11) < 0.3\n    tokens = torch.where(chosen, torch.full_like(ids, 11), ids)",
          "ids[:, 8:] = 11\n    chosen, tokens = ids < 11, ids.clone()"), []),
    ],
)  # fmt: skip
def test_tokens_that_are_to_be_found_and_not_hidden(
    foundry: Foundry, tmp_path: Path, change: tuple[str, str], told: list[bool]
) -> None:
    body = TOKENS.replace("% 12", "% 11").replace("model = Reader()", WIDE + "model = Wide()")
    body = body.replace("range(30)", "range(3)") + HIDDEN.replace(*change) + LEARN
    ran = foundry.watched(training(body), tmp_path, experiments=2.0)
    assert [a["healthy"] for a in ran.rank.facts["answers"] if a["part"] == "not hidden"] == told


@pytest.mark.parametrize(("model", "told"), [("Wide()", True), ("Squeezed()", False)])
def test_tokens_that_a_mask_chooses_and_nothing_hides(foundry: Foundry, tmp_path: Path, model: str, told: bool) -> None:
    """From one state, they are to be found again: an autoencoder that is asked about some positions."""
    body = (
        TOKENS.replace("model = Reader()", WIDE + f"model = {model}")
        + """
    chosen = torch.rand(16, 11) < 0.3
    loss = F.cross_entropy(model(ids)[chosen], ids[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    )
    found = findings(foundry.watched(training(body), tmp_path, experiments=2.0))
    assert ("chosen-tokens-not-hidden" in [finding.rule for finding in found]) is told, found


def test_constants_of_batches_with_few_rows_are_no_worse_than_less_of_the_same() -> None:
    """Of 30 classes, 12 rows have a few: the constant that fits them rules out all others."""
    values = {7: SimpleNamespace(shape=(12, 30))}
    labels = np.arange(12) + 15

    def loss_with(changes: Any) -> float:
        scores = changes[7] - np.log(np.exp(changes[7]).sum(1, keepdims=True))
        return float(-scores[np.arange(12), labels].mean())

    fitted = np.full(30, -10.0)
    fitted[:12] = 5.0
    step: Any = SimpleNamespace(values=values, loss_with=loss_with)
    memory: dict[str, Any] = {}
    assert nothing_learnt._of_earlier(step, {7: -1}, memory, [fitted]) is None
    held = nothing_learnt._of_earlier(step, {7: -1}, memory, [fitted])
    assert held is not None
    assert np.log(30) < held < 6 < loss_with({7: np.tile(fitted, (12, 1))})


def test_where_the_ways_of_whole_samples_part_comes_before_what_is_moved_within_them() -> None:
    """Targets of several numbers may be positions, or not."""
    order, cut = SourceLine("train.py", 3, "roll(signal)"), SourceLine("train.py", 9, "labels[:80]")

    def parting(ones: Any, others: Any, *, whole: bool = False, sure: bool = False) -> SourceLine | None:
        return (None if sure else cut) if whole else order

    given = {"kind": "float", "origin": "given", "into_model": False, "name": "x", "op": None}
    x = SimpleNamespace(number=0, shape=(32, 2, 40), **{**given, "into_model": True})
    y = SimpleNamespace(number=1, shape=(32, 5), **given)
    anatomy: Any = SimpleNamespace(inputs=[x], compared={1}, ancestors=lambda numbers: set(numbers))
    step: Any = SimpleNamespace(values=[x, y], ops=[], parting=parting)
    assert pairs.parted(step, anatomy) == cut


TRIED = {
    "weights that decay to nothing": (
        "weight-decay-dominates",
        LOOP.replace("torch.optim.Adam(model.parameters(), lr=1e-2)", "torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=30.0)")
        + "    loss = F.cross_entropy(model(inputs), labels)"
        + STEP,
    ),
    "gradients that pile up": (
        "gradients-never-cleared",
        LOOP.replace("torch.optim.Adam(model.parameters(), lr=1e-2)", "torch.optim.SGD(model.parameters(), lr=0.5)")
        + "    loss = F.cross_entropy(model(inputs), labels)"
        + STEP.replace("    optimizer.zero_grad()\n", ""),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRIED)
def test_a_finding_says_what_its_change_did_to_a_clone(foundry: Foundry, tmp_path: Path, name: str) -> None:
    rule, body = TRIED[name]
    found = findings(foundry.watched(training(body), tmp_path, experiments=2.0))
    finding = next(finding for finding in found if finding.rule == rule)
    tried = finding.evidence["tried"]
    assert min(tried.values()) < tried["as_it_is"] - 0.05 * tried["before"]
    assert finding.evidence["standing"] == "confirmed"
    assert "Tried on a clone: with" in finding.advice
