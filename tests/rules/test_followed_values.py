"""Values that rules follow: through dropout, beside residual connections, out of sparse matrices."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

GPT = """
    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.qkv, self.head = nn.Embedding(12, 8), nn.Linear(8, 24), nn.Linear(8, 12)
            self.drop = nn.Dropout(0.1)
        def forward(self, ids, targets):
            h = self.tokens(ids)
            q, k, v = self.qkv(h).split(8, dim=-1)
            scores = (q @ k.mT / 3).masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf)
            {weights}
            logits = self.head({residual}self.drop(weights) @ v)
            return F.cross_entropy(logits.view(-1, 12), targets.reshape(-1))
    def batch():
        text = torch.randint(0, 12, (16, 7))
        {targets}
        return text[:, :-1].contiguous(), targets
    model = Gpt()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(12):
        ids, targets = batch()
        optimizer.zero_grad()
        model(ids, targets).backward()
        optimizer.step()
"""
GOOD = {"weights": "weights = scores.softmax(-1)", "residual": "h + ", "targets": "targets = text[:, 1:].contiguous()"}


def test_softmax_over_the_wrong_dimension_behind_dropout(foundry: Foundry, tmp_path: Path) -> None:
    script = training(GPT.format(**{**GOOD, "weights": "weights = scores.softmax(-2)  # HERE"}))
    first = diagnose(foundry.watched(script, tmp_path).recording)[0]
    assert (first.rule, first.source and first.source.line) == ("softmax-over-wrong-dimension", marked(script))


def test_targets_that_are_the_inputs(foundry: Foundry, tmp_path: Path) -> None:
    script = training(GPT.format(**{**GOOD, "targets": "targets = text[:, :-1].contiguous()  # HERE"}))
    first = diagnose(foundry.watched(script, tmp_path).recording)[0]
    assert (first.rule, first.source and first.source.line) == ("target-is-input", marked(script))


@pytest.mark.parametrize("residual", ["h + ", ""])
def test_targets_that_are_given_to_the_model_are_no_copy(foundry: Foundry, tmp_path: Path, residual: str) -> None:
    ran = foundry.watched(training(GPT.format(**{**GOOD, "residual": residual})), tmp_path)
    assert ran.code == 0, ran.err
    assert [finding.rule for finding in diagnose(ran.recording)] == []
    assert ran.rank.facts["batches"]["copies"]["same"] == 0


def test_inf_in_a_sparse_matrix_is_followed_to_the_line_that_made_it(foundry: Foundry, tmp_path: Path) -> None:
    script = training("""
    edges = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 3]])
    degree = torch.bincount(edges[0], minlength=4).float()
    weights = degree.pow(-0.5)[edges[1]]  # HERE
    adjacency = torch.sparse_coo_tensor(edges, weights, (4, 4))
    class Gcn(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 3)
        def forward(self, x, adjacency):
            return torch.sparse.mm(adjacency, self.linear(x))
    model = Gcn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(x[:4], adjacency), y[:4]).backward()
        optimizer.step()
    """)
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    first = diagnose(ran.recording)[0]
    assert (first.rule, first.source and first.source.line) == ("nan-in-data", marked(script))
    assert first.evidence["in.pos_inf"] == 1
