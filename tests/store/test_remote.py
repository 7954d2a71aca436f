"""Recordings at a URL: read from a copy, uploaded beside the training, tried again where the store fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensonde.errors import RecordingError, UsageError
from tensonde.server.library import Library
from tensonde.store import remote
from tensonde.store.claim import create_run
from tensonde.store.reader import Recording
from tensonde.store.remote import Upload, fetch, fetch_all, url_of
from tensonde.store.resolve import resolve

fsspec = pytest.importorskip("fsspec")
GOLDEN = Path(__file__).parents[1] / "golden" / "v1"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    fsspec.filesystem("memory").store.clear()


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def uploaded(folder: Path, url: str) -> list[str]:
    said: list[str] = []
    Upload(folder, url, said.append, every=0.05).end()
    return said


def test_what_a_url_is() -> None:
    assert url_of(Path("s3://bucket/runs/a")) == "s3://bucket/runs/a"  # a Path loses a slash
    assert url_of("file:///tmp/x/") == "file:///tmp/x"
    assert url_of(Path("file:///tmp/x")) == "file:///tmp/x"
    assert url_of("runs/a") is None
    assert url_of("C:/runs") is None
    assert url_of("a:b") is None


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_round_trip(tmp_path: Path, kind: str) -> None:
    url = "memory://runs/golden" if kind == "memory" else f"file://{tmp_path}/store/golden"
    assert uploaded(GOLDEN, url) == []
    folder = fetch(url)
    assert files_of(folder) == files_of(GOLDEN)
    assert Recording.open(url).manifest == Recording.open(GOLDEN).manifest
    assert resolve(Path(url))[0] == folder
    with pytest.raises(UsageError, match="already has a recording"):
        Upload(GOLDEN, url, print)


def test_the_newest_of_several_and_all(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run = create_run(
            tmp_path, name, {"script": "x.py", "argv": [], "started": f"2026-01-0{1 if name == 'b' else 2}"}
        )
        uploaded(run, f"memory://many/{name}")
    assert fetch("memory://many").name == "a"
    assert {path.name for path in fetch_all("memory://many").iterdir() if path.is_dir()} == {"a", "b"}
    assert len(Library(["memory://many"]).runs()) == 2


def test_only_what_has_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run(tmp_path, "a", {"script": "x.py", "argv": []})
    (run / "rank0").mkdir()
    (run / "rank0" / "live.arrows").write_bytes(b"1")
    memory = fsspec.filesystem("memory")
    upload = Upload(run, "memory://grows/a", print, every=0.02)
    _until(lambda: memory.exists("/grows/a/rank0/live.arrows"))
    fetch("memory://grows/a")
    (run / "rank0" / "live.arrows").unlink()
    (run / "rank0" / "closed.parquet").write_bytes(b"22")
    _until(lambda: memory.exists("/grows/a/rank0/closed.parquet") and not memory.exists("/grows/a/rank0/live.arrows"))
    read: list[str] = []
    original = type(memory).get_file

    def noted(self: Any, name: str, *rest: Any, **more: Any) -> Any:
        read.append(name)
        return original(self, name, *rest, **more)

    monkeypatch.setattr(type(memory), "get_file", noted)
    folder = fetch("memory://grows/a")
    assert [Path(name).name for name in read] == ["closed.parquet"]
    assert sorted(path.name for path in (folder / "rank0").iterdir()) == ["closed.parquet"]
    upload.end()


def _until(there: Any) -> None:
    end = time.monotonic() + 10
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_store_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = type(fsspec.filesystem("memory"))
    original, failures = memory.put_file, [ConnectionError("reset by peer")] * 3

    def unsteady(self: Any, *args: Any, **kwargs: Any) -> Any:
        if failures:
            raise failures.pop()
        return original(self, *args, **kwargs)

    monkeypatch.setattr(memory, "put_file", unsteady)
    monkeypatch.setattr(remote, "_PAUSES", (0.01,))
    said = uploaded(GOLDEN, "memory://unsteady/golden")
    assert len(said) == 1
    assert "reset by peer" in said[0]
    assert "training goes on" in said[0]
    assert files_of(fetch("memory://unsteady/golden")) == files_of(GOLDEN)


def test_a_store_that_is_away_costs_no_more_than_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(*args: Any, **kwargs: Any) -> None:
        time.sleep(30)

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "put_file", hangs)
    said: list[str] = []
    upload = Upload(GOLDEN, "memory://away/golden", said.append, every=0.01)
    began = time.monotonic()
    assert not upload.end(0.3)
    assert time.monotonic() - began < 5
    assert str(GOLDEN) in said[-1]


def test_bad_urls() -> None:
    with pytest.raises(UsageError, match="cannot be opened"):
        Upload(GOLDEN, "nosuchstore://x/y", print)
    with pytest.raises(UsageError, match="cannot be opened"):
        resolve("nosuchstore://x/y")
    with pytest.raises(RecordingError, match="is not a recording"):
        resolve("memory://nothing/here")


def test_a_training_is_uploaded_and_read(tmp_path: Path) -> None:
    """By the commands, to another folder behind a URL; the store is the file system's."""
    (tmp_path / "train.py").write_text(
        "import torch, torch.nn as nn\nm = nn.Linear(3, 1)\no = torch.optim.SGD(m.parameters(), lr=0.1)\n"
        "for i in range(5):\n    o.zero_grad(); m(torch.randn(4, 3)).square().mean().backward(); o.step()\n"
    )
    url = f"file://{tmp_path}/store/mine"

    def tensonde(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tensonde", *words], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )

    done = tensonde("run", "--record", url, "train.py")
    assert done.returncode == 0
    assert f"the recording is at {url}" in done.stderr
    assert json.loads((tmp_path / "store" / "mine" / "run.json").read_text())["exit_code"] == 0
    shutil.rmtree(tmp_path / ".tensonde")
    rows = json.loads(tensonde("query", "--json", url, "SELECT count(*) AS n FROM scalars WHERE name = 'loss'").stdout)
    assert rows == [{"n": 5}]
    assert json.loads(tensonde("show", "--json", url).stdout)["ranks"]
    assert tensonde("diagnose", url).returncode == 0
    again = tensonde("run", "--record", url, "train.py")
    assert again.returncode != 0
    assert "already has a recording" in again.stderr
    assert not list((tmp_path / ".tensonde" / "runs").iterdir())


def test_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against moto's server, where it is installed."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("NO_PROXY", f"{os.environ.get('NO_PROXY', '')},127.0.0.1")
        fsspec.filesystem("s3").mkdir("bucket")
        assert uploaded(GOLDEN, "s3://bucket/runs/golden") == []
        assert files_of(fetch("s3://bucket/runs")) == files_of(GOLDEN)
        assert Recording.open("s3://bucket/runs/golden").ranks
    finally:
        server.stop()
