"""What the source says about numbers that ranks bring together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensonde.program.dealing import dealt_attribute, dealt_variable
from tensonde.program.divisions import by_own_count, divides_around, divisions_by_ranks, undivided_mean
from tensonde.program.habits import turned_on
from tensonde.program.surroundings import skips

SUMMED = {
    "printed": ("acc = ok.float().mean()", "print(f'{acc.item():.3f}')", True),
    "compared": ("acc = ok.float().mean()", "if acc.item() > best:\n        pass", True),
    "divided": ("acc = ok.float().mean()", "print(acc / world)", False),
    "divided in place": ("acc = ok.float().mean()", "acc /= world\n    print(acc)", False),
    "divided by a method": ("acc = ok.float().mean()", "acc.div_(world)\n    print(acc)", False),
    "divided as a number": ("acc = ok.float().mean()", "print(acc.item() / world)", False),
    "given to a function": ("acc = ok.float().mean()", "report(acc)", False),
    "returned": ("acc = ok.float().mean()", "return acc", False),
    "a sum": ("acc = ok.float().sum()", "print(acc)", False),
    "a share": ("acc = ok.float().mean() / world", "print(acc)", False),
    "never used": ("acc = ok.float().mean()", "pass", False),
}


@pytest.mark.parametrize("case", SUMMED)
def test_a_mean_that_is_summed(case: str, tmp_path: Path) -> None:
    before, after, expected = SUMMED[case]
    path = tmp_path / f"{case.replace(' ', '_')}.py"
    path.write_text(f"def evaluate(ok, best, world):\n    {before}\n    dist.all_reduce(acc)\n    {after}\n")
    assert undivided_mean(str(path), 3) is expected


def test_lines_that_turn_gradients_on(tmp_path: Path) -> None:
    path = tmp_path / "turned.py"
    path.write_text(
        "a.requires_grad_(False)\na.requires_grad_(True)\nb.requires_grad_()\np.requires_grad = True\np.requires_grad = False\n"
        "a.requires_grad_(flag)\na.requires_grad_(requires_grad=True)\n"
    )
    assert sorted(turned_on(str(path))) == [2, 3, 4, 7]


def test_lines_that_leave_out_a_batch(tmp_path: Path) -> None:
    loop = tmp_path / "loop.py"
    loop.write_text(
        "for epoch in range(3):\n    for x in loader:\n        loss = model(x)\n        if bad(loss):\n            continue\n"
        "        loss.backward()\n        if rare:\n            continue\n        opt.step()\n"
    )
    assert skips(str(loop), 6) == [5]
    assert skips(str(loop), 1) == []
    lit = tmp_path / "lit.py"
    lit.write_text(
        "class Lit:\n    def training_step(self, batch):\n        if bad(batch):\n            return None\n        return loss(batch)\n"
        "    def other(self):\n        if x:\n            return\n\ntrainer.fit(Lit())\n"
    )
    assert skips(str(lit), 10) == [4]


COUNTED = {
    "a count of the rank": ("seen += len(y)", "return hits.item() / seen", 7),
    "the tensor itself": ("seen += len(y)", "return (hits / seen).item()", 7),
    "a count of all ranks": ("seen += len(y)", "dist.all_reduce(seen)\n    return hits / seen", 0),
    "times the ranks": ("seen += len(y)", "return hits / seen / world", 0),
    "of the whole data set": ("seen = len(data)", "return hits / seen", 0),
    "counted anew": ("seen += len(y)", "seen = len(data)\n    return hits / seen", 0),
}


@pytest.mark.parametrize("case", COUNTED)
def test_a_sum_that_is_divided_by_a_rank_s_own_count(case: str, tmp_path: Path) -> None:
    counts, after, expected = COUNTED[case]
    path = tmp_path / f"{case.replace(' ', '_')}.py"
    path.write_text(
        f"def evaluate(loader, data, world):\n    hits = seen = 0\n    for x, y in loader:\n        hits += same(x, y)\n        {counts}\n"
        f"    dist.all_reduce(hits)\n    {after}\n"
    )
    assert by_own_count(str(path), 6) == expected


def test_lines_that_divide_by_the_number_of_ranks(tmp_path: Path) -> None:
    path = tmp_path / "by_ranks.py"
    path.write_text(
        "n = dist.get_world_size()\nloss = loss / n\nloss /= world_size\nloss = loss.div(self.num_replicas)\nloss = loss / accumulate\n"
        "loss = loss / dist.get_world_size()\nloss = loss * world_size\n"
    )
    assert divisions_by_ranks(str(path)) == [2, 3, 4, 6]


def test_functions_that_average_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "averages.py"
    path.write_text(
        "def forward(x):\n    dist.all_reduce(x)\n    return x\ndef mean(x):\n    dist.all_reduce(x)\n    return x / 2\n"
        "def backward(g):\n    dist.all_reduce(g)\n    n = g.shape[0] // 2\n    return g.mul_(0.5)\n"
        "def hook(state, bucket):\n    g = bucket.buffer()\n    dist.all_reduce(g)\n    return shared(g)\n"
        "def shared(g):\n    return g / dist.get_world_size()\n"
    )
    assert [divides_around(str(path), line) for line in (2, 5, 8, 13)] == [False, True, True, True]


def test_variables_that_hold_a_rank_s_part(tmp_path: Path) -> None:
    path = tmp_path / "dealt.py"
    path.write_text(
        "class Data:\n    def __init__(self, x, rank):\n        self.x = x[rank::2]\n        self.y = x\n"
        "def train(x, rank, world):\n    order = perm(x)[rank::world]\n    part = x.chunk(world)[dist.get_rank()]\n    whole = x[:8]\n"
        "    seeded = perm(rank)\n    again = x[rank]\n    again = x\n"
    )
    dealt = {name: dealt_variable(str(path), 8, name) for name in ("order", "part", "whole", "seeded", "again")}
    assert dealt == {"order": 6, "part": 7, "whole": 0, "seeded": 0, "again": 0}
    assert [dealt_attribute(str(path), "Data", name) for name in ("x", "y")] == [3, 0]
