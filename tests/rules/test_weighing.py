"""Softmax as weights: over the dimension that is summed, in whatever way the sum is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

ATTENTION = """
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
            self.assign, self.head, self.drop = nn.Linear(8, 3), nn.Linear(8, 3), nn.Dropout(0.1)

        def forward(self, h):
            q, k, v = (part(h).view(-1, 4, 2, 4).transpose(1, 2) for part in (self.q, self.k, self.v))
            scores = q @ k.transpose(-1, -2) / 2
            {body}
            return self.head(out.transpose(1, 2).reshape(-1, 4, 8).mean(1))

    model = Attention()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(6):
        given = torch.randn(16, 4, 8)
        loss = F.cross_entropy(model(given), y[:16])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
WRONG = {
    "einsum": 'p = scores.softmax(-2); out = torch.einsum("bhqk,bhkd->bhqd", self.drop(p), v)  # HERE',
    "bmm of a view": "p = self.drop(scores.softmax(2)).view(-1, 4, 4); out = torch.bmm(p, v.reshape(-1, 4, 4)).view(-1, 2, 4, 4)  # HERE",
    "scaled": "p = scores.softmax(1) * 0.9; out = torch.matmul(p, v)  # HERE",
    "masked by a product": "p = scores.softmax(-2) * torch.ones(4, 4).tril(); out = p @ v  # HERE",
}
RIGHT = {
    "einsum": 'out = torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), v)',
    "the other way round": 'out = torch.einsum("bhkq,bhkd->bhqd", scores.transpose(-1, -2).softmax(-2), v)',
    "slots": "p = scores.softmax(-2); p = p / p.sum(-1, keepdim=True); out = p @ v",
    "sequence and features apart": 'out = q.softmax(-1) @ torch.einsum("bhnd,bhne->bhde", k.softmax(-2), v)',
    "clusters": "s = self.assign(h).softmax(-1); a = s.transpose(1, 2) @ (h @ h.transpose(1, 2) @ s); out = v * a.mean()",
    "members of clusters": "s = self.assign(h).transpose(1, 2).softmax(1); out = v + torch.matmul(s, h).mean()",
}


def told(foundry: Foundry, folder: Path, script: str) -> list[int | None]:
    ran = foundry.watched(script, folder)
    assert ran.code == 0, ran.err
    found = [one for one in diagnose(ran.recording) if one.rule == "softmax-over-wrong-dimension"]
    return [one.source.line if one.source else None for one in found]


@pytest.mark.parametrize("name", WRONG)
def test_over_another_dimension_than_is_summed(foundry: Foundry, tmp_path: Path, name: str) -> None:
    script = training(ATTENTION.format(body=WRONG[name]))
    assert told(foundry, tmp_path, script) == [marked(script)]


@pytest.mark.parametrize("name", RIGHT)
def test_over_the_one_that_is_meant(foundry: Foundry, tmp_path: Path, name: str) -> None:
    assert told(foundry, tmp_path, training(ATTENTION.format(body=RIGHT[name]))) == []
