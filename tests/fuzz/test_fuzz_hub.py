"""Damaged recordings in the hub: every endpoint answers, or says what is wrong; none fails."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from fuzz_mutations import mutate
from starlette.testclient import TestClient

from tensonde.server.app import create_app
from tensonde.server.hub import Hub
from tensonde.server.library import Library

ENDPOINTS = (
    "sites", "graph", "status", "digests?site=decoder:out", "latest", "histograms?site=decoder:out", "scalars", "scalars?name=loss", "hits",
    "findings", "events", "node?name=decoder", "settings", "source?file=script.py", "graphs", "watchpoints", "values", "graph?source=graph0",
)  # fmt: skip


@pytest.mark.parametrize("number", range(8))
def test_damaged_recordings(base: Path, tmp_path: Path, number: int) -> None:
    seed = random.Random(number)
    shutil.copytree(base / "run", tmp_path / "run", ignore=shutil.ignore_patterns("bundles"))
    files = sorted(path for path in (tmp_path / "run").rglob("*") if path.is_file())
    documents = [path for path in files if path.suffix in (".json", ".jsonl")]
    for _ in range(4):
        mutate(seed.choice(documents if seed.random() < 0.7 else files), seed)
    client = TestClient(create_app(Hub(Library([tmp_path]))), raise_server_exceptions=True)
    for run in client.get("/api/runs").json():
        for endpoint in ENDPOINTS:
            assert client.get(f"/api/runs/{run['id']}/rank0/{endpoint}").status_code in (200, 404, 409, 422), endpoint


def test_a_column_that_is_damaged_costs_its_rows_only(base: Path, tmp_path: Path) -> None:
    shutil.copytree(base / "run", tmp_path / "run")
    client = TestClient(create_app(Hub(Library([tmp_path]))))
    (run,) = client.get("/api/runs").json()
    (path,) = (tmp_path / "run" / "rank0" / "digests").glob("*.parquet")
    content = bytearray(path.read_bytes())
    import pyarrow.parquet as pq

    group = pq.read_metadata(path).row_group(0)
    norm = next(group.column(k) for k in range(group.num_columns) if group.column(k).path_in_schema == "norm")
    at = norm.data_page_offset + norm.total_compressed_size - 20
    content[at : at + 8] = b"\xff" * 8
    path.write_bytes(content)
    answers = [client.get(f"/api/runs/{run['id']}/rank0/latest") for _ in range(2)]
    assert [answer.status_code for answer in answers] in ([404, 200], [200, 200])
