"""Folders are made once, never overwritten, and found again from what a user types."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest
from store_sample import write_run

from tensonde.errors import RecordingError, UsageError
from tensonde.store.claim import claim_rank, create_run, default_name
from tensonde.store.format import FORMAT_VERSION
from tensonde.store.reader import Recording
from tensonde.store.resolve import resolve
from tensonde.store.writer import RecordingWriter


def test_a_run_states_its_facts(tmp_path: Path) -> None:
    run = create_run(tmp_path / "deep" / "runs", None, {"script": "my train.py", "argv": ["a"]})
    assert run.name.startswith("my-train-20")
    manifest = json.loads((run / "run.json").read_text())
    assert (manifest["format"], manifest["script"], manifest["argv"]) == (FORMAT_VERSION, "my train.py", ["a"])
    assert len(manifest["id"]) == 16
    assert [path.name for path in run.iterdir()] == ["run.json"]
    assert default_name("a/../x.py") != default_name("a/../x.py")


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    create_run(tmp_path, "empty", {})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    (tmp_path / "file").write_text("keep")
    for name in ("empty", "mine"):
        with pytest.raises(UsageError, match=f"{name} already exists and is not empty; choose another name"):
            create_run(tmp_path, name, {})
    with pytest.raises(UsageError, match="a file is in the way"):
        create_run(tmp_path, "file", {})
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["notes.txt"]
    RecordingWriter(tmp_path / "empty" / "rank0", {})
    with pytest.raises(UsageError, match="already holds a recorded session"):
        RecordingWriter(tmp_path / "empty" / "rank0", {})


def _race_run(arguments: tuple[str, int]) -> str:
    try:
        return str(create_run(Path(arguments[0]), "same", {"winner": arguments[1]}))
    except UsageError:
        return ""


def _race_rank(run: str) -> tuple[str, int]:
    return claim_rank(Path(run), 0).name, os.getpid()


def test_of_many_processes_one_makes_the_run(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        for attempt in range(10):
            parent = tmp_path / str(attempt)
            (parent / "same").mkdir(parents=True)
            results = pool.map(_race_run, [(str(parent), number) for number in range(8)], chunksize=1)
            assert sum(map(bool, results)) == 1
            winner = next(number for number, result in enumerate(results) if result)
            assert json.loads((parent / "same" / "run.json").read_text())["winner"] == winner
            assert [path.name for path in (parent / "same").iterdir()] == ["run.json"]


def test_of_many_processes_each_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        results = pool.map(_race_rank, [str(tmp_path)] * 24, chunksize=1)
    names = [name for name, _ in results]
    assert len(set(names)) == 24
    assert "rank0" in names
    for name, pid in results:
        assert name == "rank0" or name.split("-")[1] == str(pid)


def test_what_leads_to_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / ".tensonde" / "runs"
    old = create_run(runs, "old", {"started": "2026-01-01T00:00:00+00:00"})
    new = create_run(runs, "new", {"started": "2026-01-02T00:00:00+00:00"})
    os.utime(old / "run.json", (2e9, 2e9))  # copied later, but not newer
    claim_rank(new, 0)
    RecordingWriter(claim_rank(new, 1), {"rank": 1})
    for given in (new, runs, runs.parent, tmp_path):
        assert resolve(given) == (new, None)
    assert resolve(new / "rank1") == (new, "rank1")
    assert [rank.name for rank in Recording.open(new / "rank1").ranks] == ["rank1"]
    assert [rank.name for rank in Recording.open(new).ranks] == ["rank0", "rank1"]
    monkeypatch.chdir(tmp_path)
    assert resolve("old")[0] == Path(".tensonde/runs/old")
    assert resolve(".") == (Path(".tensonde/runs/new"), None)
    monkeypatch.chdir(new / "rank1")
    assert resolve(".") == (new, "rank1")


def test_what_does_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for given, message in {
        "": "is not a recording: there is no run.json",
        "no": "does not exist",
        "file": "is not a",
    }.items():
        with pytest.raises(RecordingError, match=message):
            Recording.open(tmp_path / given)


def test_liveness(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    recording = Recording.open(run)
    assert [rank.state for rank in recording.ranks] == ["finished", "live"]
    assert (recording.live, recording.state) == (True, "live")
    path = run / "rank1" / "session.json"
    session = json.loads(path.read_text())
    for change in ({"boot": "other machine"}, {"started": "1"}, {"pid": 2**22 + 1}):
        path.write_text(json.dumps({**session, "process": {**session["process"], **change}}))
        assert Recording.open(run).state == "killed", change
