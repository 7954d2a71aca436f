"""NaN that a trained model gives in an evaluation, or that is made of what it gives: the op and its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose
from tensonde.model.finding import Finding

TRAINED = """
    model = Net()
    train(model, torch.optim.SGD(model.parameters(), lr=0.05), steps=30)
    model.eval()
"""
SAMPLES = """
    @torch.no_grad()
    def sample():
        out = model(x[:8])
        return torch.log(out - 100.0)  # HERE
    print(sample().mean().item())
"""
METRIC = """
    with torch.no_grad():
        one = x[:1]
        given = (x - one.mean(0)) / one.std(0)  # HERE
        print("loss", F.cross_entropy(model(given), y))
"""
MASKED = """
    with torch.no_grad():
        scores = model(x[:8]).masked_fill(torch.arange(3) > 1, -torch.inf)
        print(scores.softmax(-1), scores.max().item(), scores)
"""
NOTHING_OF_THE_MODEL = """
    print(model(x[:2]).detach())
    print(torch.zeros(0).mean().item())
"""
UNDEFINED = """
    with torch.no_grad():
        guess = model(x).argmax(1).clamp(max=1)  # class 2 is never predicted
        hits = torch.stack([((guess == k) & (y == k)).sum() for k in range(3)])
        precision = hits / torch.stack([(guess == k).sum() for k in range(3)])
        print(precision.tolist(), precision.nanmean().item())
"""


def told(foundry: Foundry, body: str, tmp_path: Path) -> list[Finding]:
    ran = foundry.watched(training(TRAINED + body), tmp_path)
    assert ran.code == 0, ran.err
    assert ran.session.get("failures", {}) == {}
    return diagnose(ran.recording)


@pytest.mark.parametrize("body", [SAMPLES, METRIC])
def test_nan_after_the_training_is_named(body: str, foundry: Foundry, tmp_path: Path) -> None:
    found = [finding for finding in told(foundry, body, tmp_path) if finding.rule == "nan-origin"]
    assert [f.source.line for f in found if f.source] == [marked(training(TRAINED + body))]
    assert found[0].severity == "warning"


@pytest.mark.parametrize("body", [MASKED, NOTHING_OF_THE_MODEL, UNDEFINED])
def test_what_is_meant_is_left_alone(body: str, foundry: Foundry, tmp_path: Path) -> None:
    assert [f for f in told(foundry, body, tmp_path) if f.rule == "nan-origin"] == []
