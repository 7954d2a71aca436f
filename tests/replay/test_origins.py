"""Each way to NaN and Inf is named by op, line and step, and its near miss is not."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from replay_trainings import findings, line_of, problems, run, script

from launch import Foundry


class Way(NamedTuple):
    """`body` goes wrong in step 7, when `bad` is true; `harmless` does the same where it does not matter."""

    body: str
    title: str
    op: str
    harmless: str
    phase: str = "forward"
    rule: str = "nan-origin"


WAYS = {
    "log of 0": Way(
        """
        def compute(x, y, bad):
            p = model(x).softmax(-1)
            if bad:
                p = p * (torch.arange(2) > 0)
            logp = p.log()  # HERE
            return F.nll_loss(logp, y)
        """,
        "log of 0", "log",
        """
        def compute(x, y, bad):
            p = model(x).softmax(-1)
            if bad:
                p = p * (torch.arange(2) > 0)
            logp = p.clamp(min=1e-6).log()
            return F.nll_loss(logp, y)
        """,
    ),
    "division by 0": Way(
        """
        def compute(x, y, bad):
            losses = F.cross_entropy(model(x), y, reduction="none")
            weight = torch.zeros(16) if bad else torch.ones(16)
            return (losses * weight).sum() / weight.sum()  # HERE
        """,
        "division of 0 by 0", "div",
        """
        def compute(x, y, bad):
            losses = F.cross_entropy(model(x), y, reduction="none")
            weight = torch.zeros(16) if bad else torch.ones(16)
            return (losses * weight).sum() / weight.sum().clamp(min=1)
        """,
    ),
    "softmax of a masked row": Way(
        """
        def compute(x, y, bad):
            scores = model(x)
            mask = torch.zeros(16, 2, dtype=torch.bool)
            mask[3, 0 if bad else 1:] = True
            scores = scores.masked_fill(mask, float("-inf"))  # MASK
            return (scores.softmax(-1)[:, 0] - y).square().mean()  # HERE
        """,
        "softmax over a row that is all -inf", "softmax",
        """
        def compute(x, y, bad):
            scores = model(x)
            mask = torch.zeros(16, 2, dtype=torch.bool)
            mask[3, 1:] = True
            scores = scores.masked_fill(mask, float("-inf"))
            return (scores.softmax(-1)[:, 0] - y).square().mean()
        """,
    ),
    "exp overflow": Way(
        """
        def compute(x, y, bad):
            out = model(x * (1e5 if bad else 1))
            rate = torch.exp(out.abs())  # HERE
            return (rate - 1).mean()
        """,
        "overflows float32", "exp",
        """
        def compute(x, y, bad):
            out = model(x * (1e5 if bad else 1))
            rate = torch.exp(-out.abs())
            return (rate - 1).mean()
        """,
    ),
    "sqrt of a negative number": Way(
        """
        def compute(x, y, bad):
            gap = (model(x)[:, 0] - y).square() - (10 if bad else 0)
            return (gap + 1e-3).sqrt().mean()  # HERE
        """,
        "sqrt of a negative number", "sqrt",
        """
        def compute(x, y, bad):
            gap = (model(x)[:, 0] - y).square() - (10 if bad else 0)
            return (gap.clamp(min=0) + 1e-3).sqrt().mean()
        """,
    ),
    "targets all ignored": Way(
        """
        def compute(x, y, bad):
            if bad:
                y = torch.full_like(y, -100)
            return F.cross_entropy(model(x), y)  # HERE
        """,
        "targets that are all ignored", "cross_entropy",
        """
        def compute(x, y, bad):
            if bad:
                y = y.clone()
                y[1:] = -100
            return F.cross_entropy(model(x), y)
        """,
    ),
    "mean of nothing": Way(
        """
        def compute(x, y, bad):
            losses = F.cross_entropy(model(x), y, reduction="none")
            kept = losses[x[:, 0] > (9 if bad else 0)]
            return kept.mean()  # HERE
        """,
        "mean of an empty tensor", "mean",
        """
        def compute(x, y, bad):
            losses = F.cross_entropy(model(x), y, reduction="none")
            kept = losses[x[:, 0] > (9 if bad else 0)]
            return kept.sum() / max(len(kept), 1)
        """,
    ),
    "sqrt at 0": Way(
        """
        def compute(x, y, bad):
            a, b = model(x), model(x if bad else x + 1)
            distance = (a - b).square().sum(1).sqrt()  # HERE
            return distance.mean() + model(x).square().mean()
        """,
        "sqrt at 0 has no finite derivative", "sqrt",
        """
        def compute(x, y, bad):
            a, b = model(x), model(x if bad else x + 1)
            distance = ((a - b).square().sum(1) + 1e-12).sqrt()
            return distance.mean() + model(x).square().mean()
        """,
        phase="backward",
    ),
    "norm at 0": Way(
        """
        def compute(x, y, bad):
            out = model(x)
            direction = out * 0 if bad else out
            return torch.sqrt(direction.square().sum(-1)).mean() + out.square().mean()  # HERE
        """,
        "sqrt at 0", "sqrt",
        """
        def compute(x, y, bad):
            out = model(x)
            direction = out * 0 if bad else out
            return direction.norm(dim=-1).mean() + out.square().mean()
        """,
        phase="backward",
    ),
    "where hides the value, not the gradient": Way(
        """
        def compute(x, y, bad):
            out = model(x)
            n = torch.ones(16, 1)
            if bad:
                n[4] = 0
            mean = torch.where(n == 0, torch.zeros_like(out), out / n)  # HERE
            return F.cross_entropy(mean, y)
        """,
        "division by 0", "div",
        """
        def compute(x, y, bad):
            out = model(x)
            n = torch.ones(16, 1)
            if bad:
                n[4] = 0
            mean = torch.where(n == 0, torch.zeros_like(out), out / n.clamp(min=1))
            with torch.no_grad():
                shown = torch.where(n == 0, torch.zeros_like(out), out / n)
            return F.cross_entropy(mean, y)
        """,
        phase="backward",
    ),
    "pow of a negative base": Way(
        """
        def compute(x, y, bad):
            out = model(x).square() + 0.1 - (50 if bad else 0)
            return (out ** 0.5).mean()  # HERE
        """,
        "negative number to the power of 0.5", "pow",
        """
        def compute(x, y, bad):
            out = model(x).square() + 0.1 - (50 if bad else 0)
            return (out.abs() ** 0.5).mean()
        """,
    ),
    "std of one value": Way(
        """
        def compute(x, y, bad):
            out = model(x[:1] if bad else x)
            return out[:, 0].std() + out.square().mean()  # HERE
        """,
        "std of a single value", "std",
        """
        def compute(x, y, bad):
            out = model(x[:2] if bad else x)
            return out[:, 0].std() + out.square().mean()
        """,
    ),
    "fp16 overflow": Way(
        """
        def compute(x, y, bad):
            out = model(x).half()
            product = (out * (300 if bad else 1)) * (torch.ones(16, 2).half() * (6000 if bad else 1))  # HERE
            return product.float().square().mean().clamp(max=1e6) + product.float().mean() * 0
        """,
        "overflows float16", "mul",
        """
        def compute(x, y, bad):
            out = model(x).half()
            product = (out * 300).float() * (torch.ones(16, 2) * 6000)
            return (product / 1.8e6).square().mean()
        """,
    ),
    "bad row in the data": Way(
        """
        def compute(x, y, bad):
            if bad:
                x = X[i]
            return F.cross_entropy(model(x), y)

        X[16 * 3 + 5, 2] = float("nan")
        X2 = X.clone()
        X = torch.nan_to_num(X)
        X[16 * 3 + 5, 2] = float("nan")
        """,
        "NaN in the data", "getitem",
        """
        def compute(x, y, bad):
            return F.cross_entropy(model(torch.nan_to_num(x)), y)

        X[16 * 3 + 5, 2] = float("nan")
        """,
        phase="data", rule="nan-in-data",
    ),
    "rows that the loss leaves out": Way(
        """
        def compute(x, y, bad):
            scores = torch.where(torch.arange(16)[:, None] == (3 if bad else -1), float("-inf"), x)
            out = model(scores.softmax(-1))  # HERE
            keep = torch.arange(16) != 3
            return F.cross_entropy(out[keep], y[keep])
        """,
        "softmax over a row that is all -inf", "softmax",
        """
        def compute(x, y, bad):
            scores = torch.where(torch.arange(16)[:, None] == (3 if bad else -1), -1e9, x)
            out = model(scores.softmax(-1))
            keep = torch.arange(16) != 3
            return F.cross_entropy(out[keep], y[keep])
        """,
    ),
    "acosh at 1": Way(
        """
        def compute(x, y, bad):
            far = model(x).square() * (0 if bad else 1) + (0 if bad else 0.1)
            return torch.acosh(1 + far).mean()  # HERE
        """,
        "acosh at 1 has no finite derivative", "acosh",
        """
        def compute(x, y, bad):
            far = model(x).square() * (0 if bad else 1)
            return torch.acosh(1.001 + far).mean()
        """,
        phase="backward",
    ),
    "ctc without an alignment": Way(
        """
        def compute(x, y, bad):
            out = model(x).log_softmax(-1)[:, None].expand(16, 4, 2)
            frames = torch.tensor([16, 16, 16, 2 if bad else 16])
            return F.ctc_loss(out, torch.ones(4, 3).long(), frames, torch.full((4,), 3))  # HERE
        """,
        "too long for its input", "ctc_loss",
        """
        def compute(x, y, bad):
            out = model(x).log_softmax(-1)[:, None].expand(16, 4, 2)
            frames = torch.tensor([16, 16, 16, 2 if bad else 16])
            return F.ctc_loss(out, torch.ones(4, 3).long(), frames, torch.full((4,), 3), zero_infinity=True)
        """,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_the_origin_is_named(name: str, foundry: Foundry, tmp_path: Path) -> None:
    way = WAYS[name]
    text = script(way.body)
    ran = run(foundry, text, tmp_path)
    found = findings(ran)
    first = found[0]
    assert way.title in first.title, [finding.title for finding in found]
    assert first.rule == way.rule
    assert first.severity == "error"
    assert first.phase == way.phase
    assert first.op in (way.op, f"true{way.op}")
    assert first.step == (3 if way.rule == "nan-in-data" else 7)
    assert first.confidence > 0.7
    if way.rule == "nan-origin":
        assert first.source is not None
        assert first.source.line == line_of(text)
    else:
        assert first.evidence["samples"] == [16 * 3 + 5] or first.evidence["samples"] == [5]
    for other in found[1:]:
        assert other.caused_by == 0 or other.severity == "info", other.title


@pytest.mark.parametrize("name", WAYS)
def test_its_near_miss_is_silent(name: str, foundry: Foundry, tmp_path: Path) -> None:
    ran = run(foundry, script(WAYS[name].harmless), tmp_path)
    assert problems(ran) == []


def test_the_mask_is_named_beside_the_softmax(foundry: Foundry, tmp_path: Path) -> None:
    text = script(WAYS["softmax of a masked row"].body)
    first = findings(run(foundry, text, tmp_path))[0]
    assert f":{line_of(text, 'MASK')}" in first.advice
    assert first.evidence["sample"] == 3


DIVERGING = """
optimizer = torch.optim.SGD(model.parameters(), lr={lr}, momentum=0.9)
for step in range(40):
    loss = F.mse_loss(model(X * 4)[:, 0], X.square().sum(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_learning_rate_that_is_too_large_comes_before_the_overflow(foundry: Foundry, tmp_path: Path) -> None:
    found = findings(run(foundry, script("", loop=DIVERGING.format(lr=3.0)), tmp_path))
    assert found[0].rule == "divergence"
    assert found[0].evidence["lr"] == 3.0
    assert all(finding.caused_by == 0 for finding in found[1:] if finding.severity != "info"), found


def test_a_learning_rate_that_is_fine_is_not_blamed(foundry: Foundry, tmp_path: Path) -> None:
    assert problems(run(foundry, script("", loop=DIVERGING.format(lr=1e-3)), tmp_path)) == []


OPTIMIZER = """
for step in range(12):
    i = torch.arange(16) + 16 * (step % 4)
    loss = F.cross_entropy(model(X[i]), Y[i])
    for group in optimizer.param_groups:
        group["lr"] = {bad} if step == 7 else 0.01
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_weights_that_go_bad_under_finite_gradients_are_the_optimizers(foundry: Foundry, tmp_path: Path) -> None:
    body = "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n"
    found = findings(run(foundry, script(body, loop=OPTIMIZER.format(bad='float("inf")')), tmp_path))
    assert found[0].rule == "nan-in-optimizer"
    assert found[0].step == 7
    assert problems(run(foundry, script(body, loop=OPTIMIZER.format(bad=0.02)), tmp_path / "fine")) == []


LOADER = """
class Table(torch.utils.data.Dataset):
    def __init__(self):
        self.x = X.clone()
        self.x[37, 2] = {value}  # HERE

    def __len__(self):
        return 64

    def __getitem__(self, k):
        return self.x[k], Y[k]

optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(2):
    for x, y in torch.utils.data.DataLoader(Table(), batch_size=16, shuffle=True, num_workers={workers}):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_the_bad_sample_is_named_by_its_index_in_the_dataset(workers: int, foundry: Foundry, tmp_path: Path) -> None:
    text = script("", loop=LOADER.format(value="float('nan')", workers=workers))
    first = findings(run(foundry, text, tmp_path))[0]
    assert first.rule == "nan-in-data"
    assert first.evidence["dataset_indices"] == [37]
    assert first.evidence["feature"] == 2
    assert first.source is not None
    assert first.source.line == line_of(text)
    fine = script("", loop=LOADER.format(value="0.0", workers=workers))
    assert problems(run(foundry, fine, tmp_path / "fine")) == []


SCALED = """
from torch.utils.data import Dataset, DataLoader
class Scans(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        row = X[i] * 0 if i == {blank} else X[i].abs()
        return row / row.max(), Y[i]  # HERE
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Scans(), batch_size=16):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_sample_that_the_dataset_makes_bad_is_named_by_the_line_that_makes_it(
    foundry: Foundry, tmp_path: Path
) -> None:
    text = script("", loop=SCALED.format(blank=37))
    first = findings(run(foundry, text, tmp_path))[0]
    assert first.rule == "nan-in-data"
    assert first.evidence["dataset_indices"] == [37]
    assert first.source is not None
    assert first.source.line == line_of(text)
    assert problems(run(foundry, script("", loop=SCALED.format(blank=-1)), tmp_path / "fine")) == []
