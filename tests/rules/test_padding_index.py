"""A padding index that hits a word, while another id is the padding."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

WORDS = """
    PAD = {pad}
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(9, 8, padding_idx={index})  # HERE
            self.head = nn.Linear(8, 3)
        def forward(self, ids):
            return self.head((self.embed(ids) * (ids != PAD)[..., None]).sum(1))
    model = Words()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(12):
        ids = torch.randint({low}, 9, (16, 8))
        ids[ids == 8] = 2
        if {padded}:
            ids = ids.masked_fill(torch.arange(8) >= torch.randint(2, 9, (16, 1)), PAD)
        ids = ids.flip(1) if {left} else ids
        optimizer.zero_grad()
        F.cross_entropy(model(ids), torch.randint(0, 3, (16,))).backward()
        optimizer.step()
"""
RIGHT = {"pad": 0, "index": 0, "low": 1, "padded": True, "left": False}


@pytest.mark.parametrize("left", [False, True])
def test_a_word_is_named(foundry: Foundry, tmp_path: Path, left: bool) -> None:
    script = training(WORDS.format(**RIGHT | {"pad": 8, "low": 0, "left": left}))
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    first = diagnose(ran.recording)[0]
    assert first.rule == "padding-index-is-a-word"
    assert first.source is not None
    assert first.source.line == marked(script)
    assert first.evidence["the_other"] == 8


NEAR_MISSES = {
    "padding": RIGHT,
    "padding that stands for unknown words as well": RIGHT | {"low": 0},
    "the last id": RIGHT | {"pad": 8, "index": 8, "low": 0},
    "no padding, and a value that may be missing": RIGHT | {"padded": False, "low": 0},
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_padding_is_left_alone(foundry: Foundry, tmp_path: Path, name: str) -> None:
    ran = foundry.watched(training(WORDS.format(**NEAR_MISSES[name])), tmp_path)
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    assert "padding-index-is-a-word" not in [finding.rule for finding in diagnose(ran.recording)]
