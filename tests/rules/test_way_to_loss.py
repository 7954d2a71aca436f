"""Shapes, bounds and saturation on the way to the loss: defects are named by their line, near misses are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

TAGS = """
    tags = (x[:, :4] > 0).float()
    hot = F.one_hot(y, 4).float()
    class Tagger(nn.Module):
        def __init__(self, last):
            super().__init__()
            self.net, self.last = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), last
        def forward(self, x):
            return self.last(self.net(x))
"""
POLICY = """
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gains = x[:, 0] * 2 + 0.1
    def learn(objective):
        for _ in range(12):
            given = x[:64]
            optimizer.zero_grad()
            objective(F.logsigmoid(model(given)), gains[:64]).backward()
            optimizer.step()
"""
RECURRENT = """
    series = torch.randn(256, 6, 5)
    class Last(nn.Module):
        def __init__(self, read, layers=1):
            super().__init__()
            self.rnn, self.read = nn.GRU(5, 8, layers, batch_first=True, bidirectional=True), read
            self.head = nn.Linear(16, 3)
        def forward(self, given):
            _, state = self.rnn(given)
            return self.head(self.read(state, len(given)))
    def fit(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            optimizer.zero_grad()
            F.cross_entropy(model(series[:32]), y[:32]).backward()
            optimizer.step()
"""
ATTENTION = """
    class Attends(nn.Module):
        def __init__(self, scores):
            super().__init__()
            self.embed, self.scores = nn.Embedding(50, 256), scores
            self.q, self.k, self.v = (nn.Linear(256, 256) for _ in range(3))
            for layer in (self.q, self.k):
                nn.init.xavier_uniform_(layer.weight)
            self.head = nn.Linear(256, 3)
        def forward(self, ids):
            h = self.embed(ids)
            weights = torch.softmax(self.scores(self.q(h), self.k(h)), -1)
            return self.head((weights @ self.v(h)).mean(1))
    ids = torch.randint(0, 50, (256, 12))
    def fit(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(8):
            optimizer.zero_grad()
            F.cross_entropy(model(ids[:32]), y[:32]).backward()
            optimizer.step()
"""
BOUNDED = """
    images = torch.rand(256, 8) * 0.5 + 0.2
    class Coder(nn.Module):
        def __init__(self, bound):
            super().__init__()
            self.net, self.bound = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)), bound
            with torch.no_grad():
                self.net[2].bias[:3] = -2.0
        def forward(self, x):
            return self.bound(self.net(x))
    def fit(model, wanted):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
        for _ in range(40):
            optimizer.zero_grad()
            F.mse_loss(model(images), wanted).backward()
            optimizer.step()
"""
BUGS = {
    "softmax over tags": ("softmax-on-several-labels", TAGS + """
    last = nn.Softmax(dim=1)  # HERE
    model = Tagger(last)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=F.binary_cross_entropy, target=tags)
    """),
    "each log-probability with each gain": ("loss-broadcasts", POLICY + """
    learn(lambda chance, gain: -(chance * gain).mean())  # HERE
    """),
    "the lesser of two such products": ("loss-broadcasts", POLICY + """
    def clipped(chance, gain):
        ratio = (chance - chance.detach()).exp() * x[:64, 1:2].exp()
        one = ratio * gain  # HERE
        return -torch.min(one, ratio.clamp(0.8, 1.2) * gain).mean()
    learn(clipped)
    """),
    "a state that is viewed by samples": ("state-viewed-across-samples", RECURRENT + """
    fit(Last(lambda state, n: state.view(n, -1)))  # HERE
    """),
    "the last layer's state that is viewed by samples": ("state-viewed-across-samples", RECURRENT + """
    fit(Last(lambda state, n: state.view(2, 2, n, 8)[-1].reshape(n, 16), layers=2))  # HERE
    """),
    "scores as they are": ("attention-not-scaled", ATTENTION + """
    fit(Attends(lambda q, k: q @ k.transpose(1, 2)))  # HERE
    """),
    "a clamp that holds outputs": ("bounded-output-without-gradient", BOUNDED + """
    fit(Coder(lambda out: out.clamp(0, 1)), images)  # HERE
    """),
}  # fmt: skip
NEAR_MISSES = {
    "softmax over classes, one-hot": TAGS + """
    model = Tagger(nn.Softmax(dim=1))
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=F.binary_cross_entropy, target=hot)
    """,
    "a product sample by sample": POLICY + """
    learn(lambda chance, gain: -(chance.squeeze(1) * gain).mean())
    """,
    "a matrix of products that somebody wanted": POLICY + """
    def matrix(chance, gain):
        table = chance.squeeze(1)[:, None] * gain
        return (table.mean(1) - gain.mean()).square().mean()
    learn(matrix)
    """,
    "a column that is the same for all": POLICY + """
    learn(lambda chance, gain: -(chance.mean(0, keepdim=True).expand(64, 1) * gain).mean() + chance.square().mean())
    """,
    "a state that is transposed first": RECURRENT + """
    fit(Last(lambda state, n: state.transpose(0, 1).reshape(n, -1)))
    """,
    "a state whose layers and directions are told apart": RECURRENT + """
    fit(Last(lambda state, n: torch.cat(tuple(state.view(2, 2, n, 8)[-1]), 1), layers=2))
    """,
    "scores that are scaled": ATTENTION + """
    fit(Attends(lambda q, k: q @ k.transpose(1, 2) / 16))
    """,
    "scores that are small": ATTENTION + """
    model = Attends(lambda q, k: q @ k.transpose(1, 2))
    nn.init.normal_(model.embed.weight, std=0.2)
    fit(model)
    """,
    "a clamp with targets at its bound": BOUNDED + """
    wanted = images.clone()
    wanted[:, :3] = 0
    fit(Coder(lambda out: out.clamp(0, 1)), wanted)
    """,
    "a clamp that holds nothing": BOUNDED + """
    fit(Coder(lambda out: (out + 2).clamp(-3, 9)), images)
    """,
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS)
def test_the_op_is_named(foundry: Foundry, tmp_path: Path, name: str) -> None:
    rule, body = BUGS[name]
    script = training(body)
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    found = [finding for finding in diagnose(ran.recording) if finding.severity != "info"]
    assert [finding.rule for finding in found][:1] == [rule]
    assert found[0].source is not None
    assert found[0].source.line == marked(script)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_the_op_is_left_alone(foundry: Foundry, tmp_path: Path, name: str) -> None:
    ran = foundry.watched(training(NEAR_MISSES[name]), tmp_path)
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    assert [finding.title for finding in diagnose(ran.recording) if finding.severity != "info"] == []
