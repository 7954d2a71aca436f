"""Conditions that compare ranks: `differs` and `spread`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ranks_program import program

from launch import Foundry
from tensonde.digest.layout import ROW
from tensonde.digest.reference import digest_array
from tensonde.errors import SyntaxProblem, UsageError
from tensonde.launch.rank_conditions import RankConditions
from tensonde.model.site import Kind, Part, Role, Site
from tensonde.store.reader import Recording
from tensonde.watch.across import AcrossRanks
from tensonde.watch.engine import Engine
from tensonde.watch.parse import loads, watchpoint


def site(id: int, name: str, part: Part | None = None) -> Site:
    return Site(id, name, Role.VALUE, Kind.PARAMETER, shape=(2,), part=part)


def digest(values: list[float], site: int, step: int, call: int = 0) -> np.ndarray:
    row = digest_array(np.array(values, np.float32))
    row["site"], row["step"], row["call"] = site, step, call
    return row


def hits(
    condition: str, *pairs: tuple[list[float], list[float]], part: Part | None = None
) -> list[tuple[int, dict[str, float]]]:
    """What is said of steps 0, 1, ... with these values on two ranks, which number their sites differently."""
    across = AcrossRanks([watchpoint(f"**:value {condition}", id=1)])
    across.sites(0, [site(3, "a", part)])
    across.sites(1, [site(5, "b", part), site(7, "a", part)])
    for step, (one, other) in enumerate(pairs):
        if part is None:
            across.take(0, digest(one, 3, step))
            across.take(1, digest(other, 7, step))
    return [(hit.moment.step, dict(hit.actual)) for hit in across.hits((0, 1))]


SAME = ([1.0, 2.0], [1.0, 2.0])


def test_differs_where_the_ranks_hold_different_values() -> None:
    assert hits("differs", SAME, ([1.0, 2.0], [1.0, 2.0000002]), SAME) == [(1, {"differs": 1.0})]
    assert hits("differs", ([np.nan, 2.0], [np.nan, 2.0]), ([np.nan, 2.0], [1.0, 2.0])) == [(1, {"differs": 1.0})]
    assert hits("not differs", SAME) == [(0, {"differs": 0.0})]


def test_spread_is_the_largest_minus_the_smallest() -> None:
    (found,) = hits("spread(max) > 0.5 and step > 0", ([1.0, 2.0], [1.0, 9.0]), ([1.0, 2.0], [1.0, 2.75]))
    assert found == (1, {"spread(max)": 0.75, "step": 1.0})
    assert hits("spread(norm) > 0", SAME) == []
    assert hits("spread(zeros) >= 0.5", ([0.0, 1.0], [1.0, 1.0]))  # also of fields that are made of others


def test_shards_are_not_compared() -> None:
    across = AcrossRanks([watchpoint("** differs", id=1)])
    assert across.sites(0, [site(0, "a", Part(("S",), (2,), (0,))), site(1, "b", Part(("R",), (2,), (0,)))]) == [1]


def test_rows_wait_for_those_of_the_other_ranks() -> None:
    across = AcrossRanks([watchpoint("** differs", id=1)])
    for rank in (0, 1):
        across.sites(rank, [site(0, "a")])
    across.take(0, np.concatenate([digest([1.0, 2.0], 0, step) for step in range(3)]))
    assert across.hits((0, 1)) == []
    across.take(1, digest([1.0, 3.0], 0, 2))  # it has looked at this step only
    assert [hit.moment.step for hit in across.hits((0, 1))] == [2]


def test_a_rank_by_itself_says_nothing() -> None:
    engine = Engine([watchpoint("** differs", id=1), watchpoint("** not differs or spread(norm) > -1", id=2)])
    engine.add_site(site(0, "a"))
    rows = np.zeros(1, ROW)
    rows[0] = digest([1.0, 2.0], 0, 0)
    assert engine.evaluate(rows) == []
    assert engine.recheck(rows) == []


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="compares ranks"):
        watchpoint("** differs", id=1, action="pause")
    with pytest.raises(UsageError, match="compares ranks"):
        loads('[[watch]]\nsites = "**"\ncondition = "spread(norm) > 1"\non_hit = "stop"')
    for wrong in ("spread() > 1", "spread(norm, 2) > 1", "spread(loss) > 1", "spread(3) > 1", "avg(differs, 3) > 0"):
        with pytest.raises(SyntaxProblem):
            watchpoint(f"** {wrong}", id=1)


DRIFTS = """
model = nn.Linear(6, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    loss = loss_of(model(x[:8]), y[:8])
    opt.zero_grad()
    loss.backward()
    if step != 3:
        average(model, world)
    opt.step()
"""


def test_a_run_says_where_its_ranks_part(foundry: Foundry, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watches = (("weight:value", "differs"), ("bias:grad", "spread(norm) > 1e-6"))
    ran = foundry.watched(program(DRIFTS), tmp_path, watch=watches)
    assert ran.code == 0, ran.err
    watching = RankConditions(ran.recording.path, [(*watch, "report") for watch in watches])
    for last in (False, True):  # what was read before is not said again
        watching.look(Recording.open(ran.recording.path), last=last)
    found = [(hit.site, hit.moment.step) for hit in Recording.open(ran.recording.path).hits if hit.watchpoint in (1, 2)]
    assert sorted(found) == [("bias:grad", 3), ("weight:value", 3)]
    assert "tensonde: weight:value: differs over 2 ranks in step 3" in capsys.readouterr().err
