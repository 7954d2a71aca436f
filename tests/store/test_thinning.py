"""A recording keeps to a size: older steps are thinned, and nothing else is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_sample import SITES, rows

from tensonde.model.moment import Moment, Phase
from tensonde.model.watchpoint import Hit
from tensonde.store.claim import claim_rank, create_run
from tensonde.store.query import query
from tensonde.store.reader import Rank, Recording
from tensonde.store.thinning import current, halved
from tensonde.store.writer import RecordingWriter

LIMIT = 1 << 19
STEPS = 8_000
HITS = (1001, 1002, 5003, STEPS - 10)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24,000 steps in a recording that has room for a part of them."""
    run = create_run(tmp_path_factory.mktemp("runs"), None, {"script": "train.py", "argv": []})
    writer = RecordingWriter(claim_rank(run, 0), {"rank": 0}, table_bytes=LIMIT)
    for site in SITES:
        writer.site(site)
    pending = []
    for step in range(STEPS):
        pending.append(rows(step))
        writer.scalars(step, {"loss": 1 / (step + 1), "lr/0": 0.1})
        if step in HITS:
            writer.hit(Hit(1, "fc1:out", Moment(step, Phase.FORWARD, 0), "norm > 0"))
        if step % 16 == 15:
            writer.digests(np.concatenate(pending))
            pending.clear()
    writer.close({"steps": STEPS})
    return run


def rank_of(run: Path) -> Rank:
    return Recording.open(run).ranks[0]


def test_a_long_run_keeps_to_its_size(long_run: Path) -> None:
    rank = rank_of(long_run)
    taken = {
        name: sum(path.stat().st_size for path in (rank.folder / name).iterdir()) for name in ("digests", "scalars")
    }
    assert sum(taken.values()) <= LIMIT
    assert taken["digests"] > LIMIT / 3  # it uses what it has
    assert len(list((rank.folder / "digests").iterdir())) < 120
    assert rank.thinned["digests"] >= 8
    assert not rank.session["problems"]


def test_the_newest_steps_and_those_with_a_hit_are_whole(long_run: Path) -> None:
    rank = rank_of(long_run)
    table = rank.digests(columns=["ord", "step", "site"])
    step, order = np.asarray(table["step"]), np.asarray(table["ord"])
    assert (np.diff(order) > 0).all()  # in order, and nothing twice
    counts = np.bincount(step, minlength=STEPS)
    assert set(counts.tolist()) == {0, len(SITES)}  # whole steps: the sites were looked at together
    for hit in HITS:
        assert counts[hit] == counts[hit - 1] == len(SITES)
    assert counts[-100:].all()
    gaps = np.diff(np.flatnonzero(counts))
    assert gaps.max() <= rank.thinned["digests"] * 2
    older, newer = counts[: STEPS // 2].astype(bool).sum(), counts[STEPS // 2 :].astype(bool).sum()
    assert older < newer
    loss = rank.scalars("loss")
    values = dict(zip(loss["step"].to_pylist(), loss["value"].to_pylist(), strict=True))
    assert values[1001] == pytest.approx(1 / 1002)
    assert len(values) < STEPS


def test_thinned_rows_are_those_that_were_written(long_run: Path) -> None:
    table = rank_of(long_run).digests(sites=[4], columns=["step", "norm", "exponents"])
    for k in range(0, table.num_rows, 997):
        step = table["step"][k].as_py()
        written = rows(step)[4]
        assert table["norm"][k].as_py() == written["norm"]
        assert table["exponents"][k].as_py() == written["exponents"].tolist()


def test_sql_and_the_summary_see_it(long_run: Path) -> None:
    from tensonde.cli.show.covered import thinned_note

    found = query([Recording.open(long_run)], "SELECT count(*) AS n, count(DISTINCT ord) AS m FROM digests").to_pylist()
    assert found[0]["n"] == found[0]["m"] == rank_of(long_run).digests(columns=["ord"]).num_rows
    note = thinned_note(rank_of(long_run).thinned)
    assert f"statistics of 1 in {rank_of(long_run).thinned['digests']}" in note


def test_a_kill_while_segments_are_brought_together_leaves_no_row_twice(long_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(long_run, copy)
    before = rank_of(copy).digests(columns=["ord"])
    folder = copy / "rank0" / "digests"
    joined = next(path for path in sorted(folder.iterdir()) if "-" in path.stem)
    shutil.copy(joined, folder / f"{joined.stem.split('-')[0]}.parquet")  # one of those that it stands for, still there
    assert rank_of(copy).digests(columns=["ord"]).equals(before)


def test_without_a_limit_nothing_is_thinned(tmp_path: Path) -> None:
    run = create_run(tmp_path, None, {"script": "train.py", "argv": []})
    writer = RecordingWriter(claim_rank(run, 0), {"rank": 0}, table_bytes=0, segment_bytes=50_000)
    for step in range(2000):
        writer.digests(rows(step))
    writer.close()
    assert rank_of(run).digests(columns=["ord"]).num_rows == 2000 * len(SITES)
    assert rank_of(run).thinned == {}


def test_files_that_stand_for_others() -> None:
    assert current(["000002", "000000", "000001"]) == ["000000", "000001", "000002"]
    assert current(["000000", "000001", "000000-000001", "000002"]) == ["000000-000001", "000002"]
    assert current(["000000-000001", "000000-000003", "000002-000003", "000004", "notes"]) == [
        "000000-000003",
        "000004",
    ]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), min_size=1, max_size=80),
    st.sets(st.integers(0, 60), max_size=5),
)
def test_each_site_keeps_every_second_step(looked: list[tuple[int, int]], spared: set[int]) -> None:
    keys, steps = (np.array(column) for column in zip(*looked, strict=True))
    kept = halved(keys, steps, np.array(sorted(spared), dtype=np.int64))
    for key in set(keys.tolist()):
        all_steps = sorted(set(steps[keys == key].tolist()))
        left = set(steps[(keys == key) & kept].tolist())
        assert not left & set(steps[(keys == key) & ~kept].tolist())  # rows of one step go together
        for pair in zip(all_steps[::2], all_steps[1::2], strict=False):
            assert 1 <= len(set(pair) & left) <= 1 + len(set(pair) & spared)
        assert spared & set(all_steps) <= left
        if len(all_steps) % 2:
            assert all_steps[-1] in left
