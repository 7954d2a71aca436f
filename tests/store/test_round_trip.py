"""What was written is what is read, in the same order, bit by bit."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_sample import SITES, rows, write_run

from tensonde.digest.layout import ROW
from tensonde.errors import UsageError
from tensonde.model.finding import Finding
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Role, Site, SourceLine
from tensonde.model.watchpoint import Hit
from tensonde.store.claim import claim_rank, create_run
from tensonde.store.columns import column
from tensonde.store.reader import Rank, Recording
from tensonde.store.schemas import DIGEST_FIELDS, DIGEST_SCHEMA, SCALAR_SCHEMA
from tensonde.store.writer import RecordingWriter

text = st.text(max_size=20)
numbers = st.dictionaries(text, st.floats(), max_size=3)
lines = st.none() | st.builds(SourceLine, text, st.integers(0, 10**6), text)
sites = st.builds(
    Site,
    id=st.integers(0, 2**31 - 1),
    name=text,
    role=st.sampled_from(Role),
    kind=st.sampled_from(Kind),
    index=st.none() | st.integers(0, 9),
    type=text,
    trainable=st.none() | st.booleans(),
    shape=st.lists(st.integers(0, 2**40), max_size=4).map(tuple),
    dtype=text,
    source=lines,
)
moments = st.builds(Moment, st.integers(0, 2**40), st.sampled_from(Phase), st.integers(0, 1000))
hits = st.builds(Hit, st.integers(0, 99), text, moments, text, numbers, numbers, st.integers(0, 99))
findings = st.builds(
    Finding, text, st.sampled_from(["error", "warning", "info"]), text, text, st.none() | st.integers(0, 99),
    st.none() | text, st.integers(0, 9), st.none() | text, st.none() | text, lines,
    st.dictionaries(text, st.integers() | text | st.floats(-1e9, 1e9), max_size=3),
    st.floats(0, 1), st.none() | st.integers(0, 9),
)  # fmt: skip


def fresh() -> Path:
    return claim_rank(create_run(Path(tempfile.mkdtemp()), None, {"script": "train.py"}), 0)


def back(table: pa.Table) -> np.ndarray:
    """The table as the rows that it came from."""
    out = np.zeros(table.num_rows, ROW)
    for name in DIGEST_FIELDS:
        column = table[name].combine_chunks()
        if name == "exponents":
            out[name] = column.flatten().to_numpy().reshape(-1, 32)
        else:
            out[name] = column.to_numpy()
    return out


@given(st.lists(sites, max_size=5), st.lists(hits, max_size=5), st.lists(findings, max_size=5))
@settings(deadline=None, max_examples=60)
def test_sites_hits_and_findings(some: list[Site], hit_list: list[Hit], finding_list: list[Finding]) -> None:
    folder = fresh()
    writer = RecordingWriter(folder, {"rank": 0})
    for site in some:
        writer.site(site)
    for hit in hit_list:
        writer.hit(hit)
    writer.findings(finding_list)
    writer.close()
    rank = Rank(folder)
    assert rank.sites == {site.id: site for site in some}
    assert repr(rank.hits) == repr(hit_list)  # by text: a NaN is not equal to itself
    assert rank.findings == finding_list
    assert rank.problems == []


@given(
    st.lists(st.binary(min_size=192, max_size=192 * 3), max_size=8),
    st.sampled_from([1, 5000, 1 << 20]),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_digests_bit_by_bit(contents: list[bytes], segment: int, closed: bool) -> None:
    """Any bytes at all, in segments of any size, read before or after they became Parquet."""
    folder = fresh()
    writer = RecordingWriter(folder, {}, segment_bytes=segment)
    written = []
    buffer = np.zeros(3, ROW)
    for content in contents:
        batch = np.frombuffer(content[: len(content) // 192 * 192], ROW)
        buffer[: len(batch)] = batch
        writer.digests(buffer[: len(batch)])
        buffer.view(np.uint8)[:] = 255  # the caller reuses its memory at once
        written.append(batch)
    if closed:
        writer.close()
    everything = np.concatenate(written) if written else np.zeros(0, ROW)
    everything = everything.copy()
    everything["reserved"] = 0
    rank = Rank(folder)
    assert back(rank.digests()).tobytes() == everything.tobytes()
    assert rank.digests(columns=["ord"])["ord"].to_pylist() == list(range(len(everything)))
    assert rank.problems == []
    writer.close()


@given(st.lists(st.tuples(st.integers(0, 2**60), st.dictionaries(text, st.floats(), max_size=4)), max_size=9))
@settings(deadline=None, max_examples=40)
def test_scalars(entries: list[tuple[int, dict[str, float]]]) -> None:
    folder = fresh()
    writer = RecordingWriter(folder, {})
    for step, values in entries:
        writer.scalars(step, values)
    writer.flush()
    table = Rank(folder).scalars()
    written = [(step, name, value) for step, values in entries for name, value in values.items()]
    read = list(zip(*(table[name].to_pylist() for name in ("step", "name", "value")), strict=True))
    assert repr(read) == repr(written)
    writer.close()


def test_a_site_given_again_takes_the_later_facts(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, {})
    writer.site(Site(3, "w", Role.GRAD, Kind.PARAMETER))
    writer.site(Site(3, "w", Role.GRAD, Kind.PARAMETER, trainable=True))
    writer.flush()
    assert Rank(tmp_path).sites[3].trainable is True


def test_full_segments_become_parquet_and_the_live_one_stays(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, {}, segment_bytes=100_000)
    for step in range(31):
        writer.digests(rows(step, 100))
    writer._compactor.finish([])
    names = sorted(path.name for path in (tmp_path / "digests").iterdir())
    assert names[-1].endswith(".arrows")
    assert all(name.endswith(".parquet") for name in names[:-1])
    assert len(names) > 4
    assert Rank(tmp_path).digests()["step"].to_pylist() == [step for step in range(31) for _ in range(100)]
    file = pq.ParquetFile(tmp_path / "digests" / names[0])
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_segment_of_many_small_batches_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensonde.store.ipc.BATCHES", 3)
    writer = RecordingWriter(tmp_path, {})
    for step in range(7):
        writer.digests(rows(step, 1))
    writer.close()
    assert len(list((tmp_path / "digests").iterdir())) == 3
    assert Rank(tmp_path).digests()["step"].to_pylist() == list(range(7))


def test_the_conversion_runs_beside_the_writer(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, {}, segment_bytes=1)
    for step in range(20):
        writer.digests(rows(step))
    writer.close({"steps": 20})
    assert {path.suffix for path in (tmp_path / "digests").iterdir()} == {".parquet"}
    session = Rank(tmp_path).session
    assert (session["steps"], session["rows"], session["problems"]) == (20, 160, [])


def test_digests_can_be_chosen(tmp_path: Path) -> None:
    rank = Recording.open(write_run(tmp_path)).ranks[0]
    assert rank.digests(steps=range(3, 5), columns=["step", "site"]).num_rows == 2 * len(SITES)
    assert set(rank.digests(steps=range(0, 20, 7))["step"].to_pylist()) == {0, 7, 14}
    assert rank.digests(steps=range(5, 5)).num_rows == 0
    table = rank.digests(sites=[2, 4], steps=(18, 99), columns=["norm"])
    assert table.column_names == ["norm"]
    assert table.num_rows == 4
    assert rank.digests(sites=[]).num_rows == 0
    with pytest.raises(UsageError, match="no column nrom"):
        rank.digests(columns=["nrom"])


def test_other_arrays_are_refused(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, {})
    with pytest.raises(ValueError, match="dtype ROW"):
        writer.digests(np.zeros(3))
    writer.digests(rows(0, 24)[::3])  # strided is fine
    assert Rank(tmp_path).digests(columns=["site"])["site"].to_pylist() == [0, 3, 6, 1, 4, 7, 2, 5]


def test_later_versions_may_add_columns_and_keys(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    for path in sorted((run / "rank0" / "digests").glob("*.parquet")):
        table = pq.read_table(path)
        pq.write_table(table.append_column("new", pa.array(range(table.num_rows))), path)
    with open(run / "rank0" / "sites.jsonl", "a") as file:
        file.write('{"id": 99, "name": "x", "role": "out", "kind": "op", "new": [1]}\n')
    rank = Recording.open(run).ranks[0]
    assert rank.digests().num_rows == 160
    assert rank.sites[99].address == "x:out"
    assert rank.problems == []


KINDS = dict.fromkeys(field.type for field in (*DIGEST_SCHEMA, *SCALAR_SCHEMA) if not pa.types.is_nested(field.type))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_column_is_what_arrow_makes_of_the_values(kind: pa.DataType) -> None:
    values: list[Any] = ["", "ü", "loss"] if kind == pa.string() else [0, 1, 7]
    assert column(values, kind).equals(pa.array(values, kind))
    assert column([], kind).equals(pa.array([], kind))
