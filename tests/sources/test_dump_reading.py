"""Reading Tensonde's dumps when something of them is missing, and the tensors of a recording."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tensonde.errors import RecordingError
from tensonde.store.dump.layout import claim_rank, create_dump
from tensonde.store.dump.writer import DumpWriter, Seen
from tensonde.store.sources import open_source

GOLDEN = Path(__file__).parent.parent / "golden" / "v1"


def dump(folder: Path, *, ranks: int = 1, steps: int = 3, names: int = 2, close: bool = True) -> Path:
    create_dump(folder, {})
    for rank in range(ranks):
        writer = DumpWriter(claim_rank(folder, rank), {}, asynchronous=False)
        for step in range(steps):
            for k in range(names):
                content = np.full(100, rank * 100 + step * 10 + k, np.float32)
                seen = Seen(f"m.{k}:out", step, "forward", 0, "module", "M", "float32", (100,))
                assert writer.put(seen, content.view(np.uint8))
        if close:
            writer.close()
    return folder


def test_ranks_and_order(tmp_path: Path) -> None:
    source = open_source(dump(tmp_path / "d", ranks=2))
    assert source.ranks == [0, 1]
    assert [(e.rank, e.step, e.name, source.read(e)[0]) for e in source.entries] == [
        (rank, step, f"m.{k}", rank * 100 + step * 10 + k) for rank in range(2) for step in range(3) for k in range(2)
    ]
    assert {entry.rank for entry in open_source(tmp_path / "d", rank=1).entries} == {1}
    with pytest.raises(RecordingError, match="has no rank 7"):
        open_source(tmp_path / "d", rank=7)


def test_a_dump_that_is_being_written_can_be_read(tmp_path: Path) -> None:
    source = open_source(dump(tmp_path / "d", close=False))
    assert len(source.entries) == 6
    assert source.read(source.entries[-1])[0] == 21


def test_a_missing_index_is_said(tmp_path: Path) -> None:
    dump(tmp_path / "d")
    (tmp_path / "d" / "rank_0" / "index.parquet").unlink()
    with pytest.raises(RecordingError, match=r"the index of .* is missing"):
        open_source(tmp_path / "d")


def test_a_damaged_index_is_said(tmp_path: Path) -> None:
    dump(tmp_path / "d")
    path = tmp_path / "d" / "rank_0" / "index.parquet"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(RecordingError, match=r"index.parquet cannot be read as the index of a dump"):
        open_source(tmp_path / "d")


def test_a_truncated_step_costs_only_its_tail(tmp_path: Path) -> None:
    dump(tmp_path / "d")
    path = tmp_path / "d" / "rank_0" / "steps" / "000001.safetensors"
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 10)
    source = open_source(tmp_path / "d")
    assert [(entry.step, entry.name) for entry in source.entries] == [
        (0, "m.0"),
        (0, "m.1"),
        (1, "m.0"),
        (2, "m.0"),
        (2, "m.1"),
    ]
    assert len(source.problems) == 1
    assert "m.1:out of step 1" in source.problems[0]


def test_a_step_that_is_gone_is_named(tmp_path: Path) -> None:
    dump(tmp_path / "d")
    (tmp_path / "d" / "rank_0" / "steps" / "000002.safetensors").unlink()
    source = open_source(tmp_path / "d")
    assert {entry.step for entry in source.entries} == {0, 1}
    assert "m.0:out of step 2, m.1:out of step 2" in source.problems[0]


def test_many_tensors_of_one_step_go_to_several_files(tmp_path: Path) -> None:
    dump(tmp_path / "d", steps=1, names=5000)
    files = sorted(path.name for path in (tmp_path / "d" / "rank_0" / "steps").iterdir())
    assert len(files) > 1
    source = open_source(tmp_path / "d")
    assert len(source.entries) == 5000
    assert all(source.read(entry)[0] == int(entry.name[2:]) for entry in source.entries)
    from safetensors.numpy import load_file

    assert sum(len(load_file(tmp_path / "d" / "rank_0" / "steps" / name)) for name in files) == 5000


def test_the_values_of_a_recording(tmp_path: Path) -> None:
    source = open_source(GOLDEN)
    assert source.kind == "recording"
    assert source.entries
    for entry in source.entries:
        assert source.read(entry).shape == entry.shape
    shutil.copytree(GOLDEN, tmp_path / "run")
    dump(tmp_path / "run" / "dump")
    both = open_source(tmp_path / "run")
    assert len(both.entries) == len(source.entries) + 6
    assert len({(entry.rank, entry.order) for entry in both.entries}) == len(both.entries)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = dump(tmp_path / "d") / "dump.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(RecordingError, match="format 99"):
        open_source(tmp_path / "d")
