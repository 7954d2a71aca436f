"""What a hit says of its condition."""

from __future__ import annotations

from tensonde.model.moment import Moment, Phase
from tensonde.model.watchpoint import Hit


def hit(preset: dict[str, float], actual: dict[str, float]) -> Hit:
    return Hit(1, "fc:grad", Moment(3, Phase.BACKWARD), "condition", preset, actual)


def test_a_hit_shows_the_comparisons_that_hold() -> None:
    either = hit(
        {"nonfinite >": 0, "scaled ==": 0, "seen() >=": 20, "lowest(nonfinite, 20) >": 0},
        {"nonfinite": 48, "scaled": 0, "seen()": 12, "lowest(nonfinite, 20)": 0},
    )
    assert either.met() == ({"nonfinite >": 0, "scaled ==": 0}, {"nonfinite": 48, "scaled": 0})
    outside = hit({"mean <": 1, "mean >": 9}, {"mean": 12.0, "norm": 3.0})
    assert outside.met() == ({"mean >": 9}, {"mean": 12.0, "norm": 3.0})


def test_a_hit_shows_all_where_none_holds_or_that_cannot_be_said() -> None:
    rounded = hit({"max >": 5}, {"max": 5.0})
    assert rounded.met() == ({"max >": 5}, {"max": 5.0})
    unknown = hit({"other >": 5, "abs(x) of": 1}, {"x": float("nan")})
    assert unknown.met() == (dict(unknown.preset), dict(unknown.actual))
    assert hit({}, {}).met() == ({}, {})
