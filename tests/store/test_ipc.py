"""What a training writes by itself is what pyarrow reads."""

from __future__ import annotations

import base64
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tensonde.digest.layout import ROW
from tensonde.store import ipc
from tensonde.store.compactor import compact_closed
from tensonde.store.reader import Rank
from tensonde.store.schemas import DIGEST_FIELDS, DIGEST_SCHEMA, SCALAR_SCHEMA
from tensonde.store.segments import read_stream
from tensonde.store.writer import RecordingWriter


@pytest.mark.parametrize(("head", "schema"), [(ipc.DIGEST_HEAD, DIGEST_SCHEMA), (ipc.SCALAR_HEAD, SCALAR_SCHEMA)])
def test_the_heads_are_the_schemas(head: bytes, schema: pa.Schema) -> None:
    anew = base64.b64encode(zlib.compress(bytes(schema.serialize()), 9)).decode()
    assert pa.ipc.read_schema(pa.py_buffer(head)) == schema, f"ipc.py should have\n{anew}"


@pytest.mark.parametrize("n", [1, 2, 7, 8, 1000])
def test_every_column_of_every_row(n: int) -> None:
    rows = np.frombuffer(np.random.default_rng(n).bytes(n * ROW.itemsize), ROW)
    stream = ipc.DIGEST_HEAD + ipc.digest_message(rows, 7) + ipc.digest_message(rows[:1], 7 + n)
    table, wrong = read_stream(pa.py_buffer(stream))
    assert table is not None
    assert not wrong
    assert table.schema == DIGEST_SCHEMA
    assert table["ord"].to_pylist() == list(range(7, 8 + n))
    for name in DIGEST_FIELDS:
        column = table[name].combine_chunks()
        read = column.flatten().to_numpy() if name == "exponents" else column.to_numpy()
        assert read.tobytes() == rows[name].tobytes() + rows[:1][name].tobytes(), name


def test_scalars_of_any_name() -> None:
    given = [(k, "lösses/" * (k % 3), float(k)) for k in range(11)]
    table, wrong = read_stream(pa.py_buffer(ipc.SCALAR_HEAD + ipc.scalar_message(given, 5)))
    assert table is not None
    assert not wrong
    assert table.schema == SCALAR_SCHEMA
    assert [tuple(row.values()) for row in table.to_pylist()] == [(5 + k, *row) for k, row in enumerate(given)]


def test_the_supervisor_compacts_what_was_closed_and_nothing_else(tmp_path: Path) -> None:
    rows = np.zeros(5, ROW)
    done, going = (RecordingWriter(tmp_path / f"rank{k}", {}, compact=False) for k in range(2))
    for writer in (done, going):
        writer.digests(rows)
    done.close()
    assert Rank(tmp_path / "rank0").digests().num_rows == 5
    compact_closed(tmp_path)
    assert [path.name for path in (tmp_path / "rank0" / "digests").iterdir()] == ["000000.parquet"]
    assert [path.name for path in (tmp_path / "rank1" / "digests").iterdir()] == ["000000.arrows"]
    assert Rank(tmp_path / "rank0").digests().num_rows == 5
    going.digests(rows)
    assert Rank(tmp_path / "rank1").digests().num_rows == 10


def test_writing_does_not_import_pyarrow(tmp_path: Path) -> None:
    code = f"""
import sys, numpy as np
from pathlib import Path
from tensonde.digest.layout import ROW
from tensonde.session.session import Session
from tensonde.store.writer import RecordingWriter
writer = RecordingWriter(Path({str(tmp_path)!r}), {{}}, compact=False)
writer.digests(np.zeros(3, ROW))
writer.scalars(0, {{"loss": 1.0}})
writer.close()
assert not {{"pyarrow", "pandas", "duckdb", "rich"}} & set(sys.modules), sorted(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_full_segments_wait_for_the_command_until_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensonde.store.writer.LEFT_BYTES", 120_000)
    writer = RecordingWriter(tmp_path / "rank0", {}, compact=False, segment_bytes=30_000)
    rows = np.zeros(200, ROW)
    for step in range(4):  # three are full, of 38,400 bytes and more each
        rows["step"] = step
        writer.digests(rows)
    assert not list(tmp_path.glob("rank0/digests/*.parquet"))
    for step in range(4, 8):
        rows["step"] = step
        writer.digests(rows)
    writer.close()
    assert len(list(tmp_path.glob("rank0/digests/*.parquet"))) >= 4
    compact_closed(tmp_path)
    assert not list(tmp_path.glob("rank0/digests/*.arrow*"))
    table = Rank(tmp_path / "rank0").digests()
    assert table["step"].to_pylist() == [step for step in range(8) for _ in range(200)]
