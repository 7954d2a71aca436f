"""What the source says about numbers that ranks bring together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensonde.program.divisions import undivided_mean
from tensonde.program.habits import turned_on

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
