"""SQL over recordings: the views, several runs at once, and nothing beyond the recordings."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest
from store_sample import rows, write_run

from tensonde.digest.layout import COUNTS, STATS
from tensonde.errors import UsageError
from tensonde.model.site import Kind, Role, Site
from tensonde.store.claim import claim_rank, create_run
from tensonde.store.query import VIEWS, query
from tensonde.store.reader import Recording
from tensonde.store.writer import RecordingWriter


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording.open(write_run(tmp_path_factory.mktemp("runs"), "it's a demo"))


def test_the_columns_of_digests(demo: Recording) -> None:
    table = query(demo, "SELECT * FROM digests WHERE rank = 0 ORDER BY ord")
    assert table.column_names == [
        "run", "process", "rank", "ord", "step", "phase", "site", "name", "role", "kind", "type", "call",
        "dtype", "flags", *COUNTS, "nans", "infs", "zeros", *STATS, "exponents",
    ]  # fmt: skip
    row = table.slice(4, 1).to_pylist()[0]
    expected = {
        "run": "it's a demo", "process": "rank0", "rank": 0, "ord": 4, "step": 0,
        "phase": "backward", "site": "fc1.weight:grad", "name": "fc1.weight", "role": "grad",
        "kind": "parameter", "type": "Linear",
        "dtype": "float32", "count": 64, "nans": 0.0,
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
    assert row["zeros"] == row["zero"] / 64
    assert row["norm"] == rows(0)["norm"][4]
    assert row["exponents"] == rows(0)["exponents"][4].tolist()


def test_no_statistic_is_null_so_that_comparisons_mean_what_they_say(demo: Recording) -> None:
    found = query(demo, "SELECT count(*) AS n FROM digests WHERE absmax > 1e30 OR min > 1e30")
    assert found["n"].to_pylist() == [0]
    assert query(demo, "SELECT count(*) AS n FROM digests WHERE absmax IS NULL")["n"].to_pylist() == [48]


def test_every_view_answers(demo: Recording) -> None:
    counts = {name: query(demo, f"SELECT count(*) AS n FROM {name}")["n"][0].as_py() for name in VIEWS}
    assert counts == {
        "digests": 320, "sites": 16, "scalars": 120, "hits": 2, "findings": 2, "events": 2, "collectives": 0, "whole": 0,
    }  # fmt: skip
    (hit,) = query(demo, "SELECT *, actual['nan'] AS seen FROM hits WHERE rank = 1").to_pylist()
    assert (hit["site"], hit["step"], hit["phase"], hit["seen"]) == ("fc2:out[0]", 20, "forward", 64.0)
    finding = query(demo, "SELECT rule, file, line, evidence->>'nan' AS nan FROM findings WHERE ord = 0").to_pylist()
    assert finding == [{"rule": "nan-origin", "file": "train.py", "line": 44, "nan": "64"}]
    losses = query(demo, "SELECT value FROM scalars WHERE name = 'loss' AND rank = 0 ORDER BY step")
    assert losses["value"].to_pylist()[3] == 0.25
    assert math.isnan(losses["value"].to_pylist()[-1])
    event = query(demo, "SELECT fields->>'note' AS note FROM events LIMIT 1")
    assert event["note"].to_pylist() == ["a made-up training"]
    shape = query(demo, "SELECT shape, trainable, \"index\" FROM sites WHERE site = 'fc2:out[0]' AND rank = 0")
    assert shape.to_pylist() == [{"shape": [8, 2], "trainable": None, "index": 0}]


def test_several_recordings(demo: Recording, tmp_path: Path) -> None:
    other = Recording.open(write_run(tmp_path, "other"))
    same = Recording.open(write_run(tmp_path / "elsewhere", "other"))
    counts = query([demo, other], "SELECT run, count(*) AS n FROM digests GROUP BY run ORDER BY run")
    assert counts.to_pylist() == [{"run": "it's a demo", "n": 320}, {"run": "other", "n": 320}]
    names = query([other, same], "SELECT DISTINCT run FROM sites ORDER BY run")["run"].to_pylist()
    assert names == sorted([str(other.path), str(same.path)])


def test_sites_of_one_rank_do_not_name_those_of_another(tmp_path: Path) -> None:
    run = create_run(tmp_path, "run", {})
    for rank in (0, 0, 1):
        folder = claim_rank(run, rank)
        writer = RecordingWriter(folder, {"rank": rank})
        writer.site(Site(0, f"in-{folder.name}", Role.OUT, Kind.OP))
        writer.digests(rows(0, 2))
    table = query(Recording.open(run), "SELECT process, rank, site FROM digests ORDER BY process, ord")
    assert [(row["rank"], row["site"]) for row in table.to_pylist()] == [
        (rank, site) for process, rank in zip(sorted({*table["process"].to_pylist()}), (0, 0, 1), strict=True)
        for site in (f"in-{process}:out", "#1")
    ]  # fmt: skip


def test_an_empty_recording_has_the_same_views(tmp_path: Path) -> None:
    recording = Recording.open(create_run(tmp_path, "empty", {}))
    for name in VIEWS:
        assert query(recording, f"SELECT * FROM {name}").num_rows == 0
    assert recording.state == "empty"


def test_live_and_closed_segments_together_while_the_writer_goes_on(tmp_path: Path) -> None:
    run = create_run(tmp_path, "run", {})
    writer = RecordingWriter(claim_rank(run, 0), {}, segment_bytes=30_000)
    for step in range(20):
        writer.digests(rows(step, 40))
        found = query(Recording.open(run), "SELECT count(*) AS n, max(ord) AS last FROM digests").to_pylist()
        assert found == [{"n": 40 * (step + 1), "last": 40 * (step + 1) - 1}]
    writer.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM read_parquet('{run}/rank0/digests/000000.parquet')",
        "SELECT * FROM glob('/etc/*')",
        "COPY digests TO '{run}/out.csv'",
        "EXPORT DATABASE '{run}/out'",
        "ATTACH '{run}/out.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "SELECT * FROM secret",
        "SELECT 1; COPY digests TO '{run}/out.csv'",
    ],
)
def test_a_query_reaches_nothing_but_the_recording(tmp_path: Path, sql: str) -> None:
    secret = pa.table({"a": [1]})  # a variable of the caller's, which DuckDB would find by name
    run = write_run(tmp_path)
    with pytest.raises(UsageError, match=r"The query failed: .*; the views are digests, sites, scalars, hits"):
        query(Recording.open(run), sql.format(run=str(run).replace("'", "''")))
    assert not list(run.glob("out*"))
    assert secret.num_rows == 1


def test_errors_are_one_sentence(demo: Recording) -> None:
    with pytest.raises(UsageError, match=r'column "nrom" not found.*; the views are') as problem:
        query(demo, "SELECT nrom FROM digests")
    assert "\n" not in str(problem.value)
    for sql in ("", "-- nothing"):
        with pytest.raises(UsageError, match="selects nothing; write a SELECT"):
            query(demo, sql)
    with pytest.raises(UsageError, match="Conversion Error"):
        query(demo, "SELECT site::INT FROM digests")
