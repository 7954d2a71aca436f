"""The judgement of the runner of pairs, and one pair by it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "corpus"))

import compare as pairs  # noqa: E402


def verdict(site: str, setting: str = "", judgement: str = "forward") -> dict[str, Any]:
    settings = [{"what": setting, "a": 1, "b": 2}] if setting else []
    return {"verdict": "divergent", "judgement": judgement, "first": {"site": site}, "settings": settings}


def test_a_place_counts_when_it_is_the_module_or_inside_of_it() -> None:
    wanted = {"judgement": "forward", "module": "blocks.1", "setting": None}
    assert pairs.names(verdict("blocks.1:out"), wanted)
    assert pairs.names(verdict("blocks.1/gelu#0:out"), wanted)
    assert pairs.names(verdict("blocks.1.norm.weight:grad"), wanted)
    assert not pairs.names(verdict("blocks.11:out"), wanted)
    assert not pairs.names(verdict("blocks:out"), wanted)
    assert not pairs.names(verdict("blocks.1:out", judgement="init"), wanted)


def test_a_setting_counts_when_it_comes_first() -> None:
    wanted = {"judgement": "optimizer", "module": None, "setting": "optimizer.betas"}
    assert pairs.names(verdict("fc.weight:update", "optimizer.betas", "optimizer"), wanted)
    assert not pairs.names(verdict("fc.weight:update", "optimizer.lr", "optimizer"), wanted)


def test_every_pair_says_what_is_expected_of_it() -> None:
    for pair in pairs.PAIRS.iterdir():
        if pair.is_dir():
            wanted = pairs.expected(pair)
            assert wanted["judgement"] in ("data", "init", "forward", "backward", "optimizer")
            assert wanted["module"] or wanted["setting"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_pair_is_judged_right() -> None:
    judged = pairs.judge(pairs.PAIRS / "pair_batchnorm_momentum")
    assert judged.right, judged
