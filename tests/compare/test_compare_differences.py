"""How a difference spreads through a step, also where the other run has other names and other ops."""

from __future__ import annotations

from pathlib import Path

from compare_scripts import PORT, REFERENCE, spoilt

from launch import Foundry
from tensonde.compare.differences import Difference, spread
from tensonde.compare.judge import judge
from tensonde.compare.side import Side, read_side


def recorded(foundry: Foundry, folder: Path, script: str, name: str) -> Side:
    cwd = folder / name
    cwd.mkdir()
    ran = foundry.watched(script, cwd, budget=0.05, recommended=False)
    assert ran.code == 0, ran.err
    assert ran.folder is not None
    return read_side(ran.folder, name)


def spread_of(foundry: Foundry, folder: Path, port: str) -> list[Difference]:
    a, b = recorded(foundry, folder, REFERENCE, "a"), recorded(foundry, folder, port, "b")
    found = spread(a, b, judge(a, b))
    assert found.step == 0
    return found.rows


def test_what_is_behind_the_origin_differs_and_nothing_before(foundry: Foundry, tmp_path: Path) -> None:
    rows = spread_of(foundry, tmp_path, spoilt(PORT, "nn.GELU()", "nn.GELU('tanh')"))
    at = next(k for k, row in enumerate(rows) if row.status == "origin")
    assert (rows[at].a, rows[at].b) == ("blocks.0/gelu#0:out", "layers.0.mlp.1/gelu#0:out")
    assert rows[at].found is not None
    assert 0 < rows[at].found.relative < 1e-2
    assert {row.status for row in rows[:at]} == {"equal"}
    by_name = {row.a: row for row in rows[at + 1 :]}
    for name, other in (
        ("blocks.0/add#0:out", "layers.0/add#0:out"),  # the operands stand the other way round
        ("blocks.1.norm:out", "layers.1.ln:out"),
        ("model:out", "net:out"),
        ("head/linear#0:grad", "out/linear#0:grad"),
    ):
        assert (by_name[name].b, by_name[name].status) == (other, "different"), name
    assert by_name["model/mean#0:out"].status == "unmatched"  # a sum and a division there
    assert {"net/sum#0:out", "net/div#0:out"} <= {row.b for row in rows if row.a is None}


def test_the_same_in_other_words_is_equal_but_for_rounding(foundry: Foundry, tmp_path: Path) -> None:
    rows = spread_of(foundry, tmp_path, PORT)
    assert {row.status for row in rows} <= {"equal", "rounding", "unmatched"}
    assert sum(row.status != "unmatched" for row in rows) > 40
