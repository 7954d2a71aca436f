"""Ranks side by side: who keeps the others waiting, and bands over the ranks, from recorded values with known answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tensonde.model.stop import Resume
from tensonde.server.place import Place
from tensonde.server.ranks import bands, waiting
from tensonde.server.recorded import RecordedRank
from tensonde.session.gate import Gate
from tensonde.store.collectives import CollectivesFile, Kind
from tensonde.store.standing import Standing, stuck
from tensonde.store.whereabouts import HELD, Still, Whereabouts


def rank(folder: Path, number: int, seconds: list[float]) -> Place:
    own = folder / f"rank{number}"
    own.mkdir()
    file = CollectivesFile(own)
    kind = file.kind("k", lambda: Kind("all_reduce", "float32[1]", "SUM", file="train.py", line=7))
    for step, spent in enumerate(seconds):
        file.ended(file.begins(kind, step + 1, step), spent)
    file.begins(kind, len(seconds) + 1, len(seconds))
    assert file.running is not None
    assert file.running.number == len(seconds) + 1
    file.close()
    return Place("run", own.name, RecordedRank(own))


def test_who_is_in_a_collective_for_the_shortest_time_came_last(tmp_path: Path) -> None:
    found = waiting([rank(tmp_path, 0, [0.5, 0.2, 0.4]), rank(tmp_path, 1, [0.1, 0.3, 0.1])])
    assert np.isclose(found["waited"]["rank0"], 0.7)
    assert np.isclose(found["waited"]["rank1"], 0.1)
    assert np.isclose(found["waited_for"]["rank1"], 0.7)
    assert (found["calls"], found["steps"], found["slowest"]) == (3, [0, 2], "rank1")
    assert found["sentence"] == "the others have waited 0.7 s for rank1, most of it at train.py:7"


def test_one_rank_waits_for_nobody(tmp_path: Path) -> None:
    assert waiting([rank(tmp_path, 0, [0.5])])["slowest"] is None


def test_bands_are_over_the_ranks_that_have_a_number() -> None:
    values = np.array([[1.0, np.nan, np.nan], [3.0, 2.0, np.nan]])
    low, high, spread = bands(values, np.isnan(values))
    assert low[:2].tolist() == [1.0, 2.0]
    assert high[:2].tolist() == [3.0, 2.0]
    assert spread[0] == 2.0
    assert np.isnan([spread[1], low[2], high[2], spread[2]]).all()  # one rank alone agrees with nobody
    # NaN on one rank is as far from a number as can be.
    assert bands(values, np.zeros_like(values, bool))[2][:2].tolist() == [2.0, np.inf]


def test_a_hold_is_at_the_end_of_the_step_unless_a_stop_before_is_wanted() -> None:
    gate = Gate(controller=lambda stop: Resume())
    gate.request_hold(5)
    assert gate.end_of_step(5) is None
    assert gate.end_of_step(6) == "pause"
    gate.request_pause_at(3, "step")
    gate.request_hold(5)
    assert gate.end_of_step(3) == "step"


def test_a_rank_at_a_debugger_is_no_reason_for_an_alarm(tmp_path: Path) -> None:
    rank(tmp_path, 0, [])
    from tensonde.store.collectives import read_collectives

    inside = Standing(0, Whereabouts(3), False, False, tuple(read_collectives(tmp_path / "rank0")))
    other = Standing(1, Whereabouts(3), False, False)
    held = Standing(1, Whereabouts(3, still=Still(1.0, HELD, "train.py", 9)), False, False)
    later = inside.calls[-1].began + 60
    assert stuck([inside, other], now=later) is not None
    assert stuck([inside, held], now=later) is None
