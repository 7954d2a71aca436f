"""A full disk, a deleted folder or a torn write costs what could not be written, and nothing else."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from store_sample import SITES, rows

from tensonde.model.moment import Moment, Phase
from tensonde.store import files
from tensonde.store.reader import Rank
from tensonde.store.writer import RecordingWriter


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def full(action: Callable[[], object]) -> bool:
    """Whether the action fails for want of room. It may also succeed; any other failure is a failure."""
    try:
        action()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return True
    return False


def fill(place: Path) -> None:
    with open(place / "filler", "wb", buffering=0) as file:
        while not full(lambda: file.write(bytes(1024))):
            pass


def test_a_full_disk(small_disk: Path) -> None:
    writer = RecordingWriter(small_disk / "rank0", {"rank": 0}, segment_bytes=150_000)
    for site in SITES:
        writer.site(site)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(400_000))
    kept, failures = [], 0
    for step in range(40):
        if full(lambda step=step: writer.digests(rows(step, 200))):  # type: ignore[misc]
            failures += 1
        else:
            kept.append(step)
        if failures == 5 and ballast.exists():
            ballast.unlink()  # there is room again
    assert failures >= 5
    assert kept[-1] > kept[0] + len(kept), "it went on after the failures"
    full(lambda: writer.close({"steps": 40}))
    rank = Rank(small_disk / "rank0")
    assert rank.digests(columns=["step"])["step"].to_pylist() == [step for step in kept for _ in range(200)]
    assert rank.problems == []
    assert len(rank.sites) == len(SITES)


def test_a_disk_that_stays_full_can_still_be_closed(small_disk: Path) -> None:
    before = threading.active_count()
    writer = RecordingWriter(small_disk / "rank0", {"rank": 0})
    writer.digests(rows(0, 200))
    writer.event("before")
    fill(small_disk)
    for _ in range(3):
        assert full(lambda: writer.event("x", text="y" * 10_000))
        assert full(lambda: writer.digests(rows(1, 400)))
        assert full(lambda: writer.value("a:out", Moment(0, Phase.FORWARD), bytes(90_000), "uint8", (90_000,)))
    writer.scalars(1, {"loss": 1.0})
    assert full(lambda: writer.close({"steps": 1}))
    writer.close()
    assert threading.active_count() == before
    rank = Rank(small_disk / "rank0")
    assert rank.digests().num_rows == 200
    assert [event["kind"] for event in rank.events] == ["before"]
    assert rank.values == []
    assert not list((small_disk / "rank0" / "values").iterdir()), "no draft is left to fill the disk"
    assert rank.session["rank"] == 0, "the first session.json is still whole"


def test_a_deleted_folder_is_told_and_the_writer_can_be_closed(tmp_path: Path) -> None:
    folder = tmp_path / "rank0"
    writer = RecordingWriter(folder, {})
    writer.digests(rows(0))
    writer.event("before")
    shutil.rmtree(folder)
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            writer.digests(rows(1))
        with pytest.raises(FileNotFoundError):
            writer.event("after")
        with pytest.raises(FileNotFoundError):
            writer.value("a:out", Moment(0, Phase.FORWARD), b"1234", "float32", (1,))
    with pytest.raises(FileNotFoundError):
        writer.close()
    writer.close()
    writer.digests(rows(2))  # after close: nothing
    assert not folder.exists()


def test_a_write_that_fails_half_way_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RecordingWriter(tmp_path, {})
    writer.digests(rows(0))
    writer.event("first")
    monkeypatch.setattr(files.os, "write", half_writes())
    with pytest.raises(OSError, match="half"):
        writer.digests(rows(1))
    with pytest.raises(OSError, match="half"):
        writer.event("second")
    monkeypatch.undo()
    writer.digests(rows(2))
    writer.event("third")
    rank = Rank(tmp_path)
    assert set(rank.digests()["step"].to_pylist()) == {0, 2}
    assert [event["kind"] for event in rank.events] == ["first", "third"]
    assert rank.problems == []


def test_a_write_that_can_not_be_undone_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RecordingWriter(tmp_path, {})
    writer.digests(rows(0))
    writer.event("first")
    monkeypatch.setattr(files.os, "write", half_writes())
    monkeypatch.setattr(files.os, "ftruncate", no_undo)
    with pytest.raises(OSError, match="half"):
        writer.digests(rows(1))
    with pytest.raises(OSError, match="half"):
        writer.event("second")
    monkeypatch.undo()
    writer.digests(rows(2))
    writer.event("third")
    rank = Rank(tmp_path)
    assert set(rank.digests()["step"].to_pylist()) == {0, 2}
    assert [event["kind"] for event in rank.events] == ["first", "third"]
    assert any("events.jsonl line 2" in problem for problem in rank.problems)
    writer.close()
    assert set(Rank(tmp_path).digests()["step"].to_pylist()) == {0, 2}


def no_undo(fd: int, size: int) -> None:
    raise OSError("no undo")


def half_writes() -> object:
    write = os.write
    calls = iter(range(10**6))

    def half(fd: int, content: memoryview) -> int:
        if next(calls) % 2:
            raise OSError(errno.EIO, "half a write")
        return write(fd, content[: len(content) // 2])

    return half


def test_a_conversion_that_fails_leaves_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("not today")

    monkeypatch.setattr("tensonde.store.segments.write_parquet", refuse)
    writer = RecordingWriter(tmp_path, {})
    writer.digests(rows(0))
    writer.close()
    rank = Rank(tmp_path)
    assert rank.digests().num_rows == len(SITES)
    assert rank.session["problems"] == ["digests/000000.arrows stays uncompressed: not today"]


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, {})
    writer.digests(rows(0))
    pid = os.fork()
    if pid == 0:
        try:
            writer.digests(rows(1))
            writer.event("from the child")
            writer.close({"exit": {"code": 9}})
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    writer.digests(rows(2))
    writer.close()
    rank = Rank(tmp_path)
    assert set(rank.digests()["step"].to_pylist()) == {0, 2}
    assert (rank.events, rank.session.get("exit")) == ([], None)


def test_a_child_forked_while_a_thread_writes_does_not_wait_for_ever(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, {})
    with writer._lock:
        pid = os.fork()
        if pid == 0:
            # The lock is held by this very thread here; by another one it could never be had again.
            thread = threading.Thread(target=writer.digests, args=(rows(1),))
            thread.start()
            thread.join(5)
            os._exit(1 if thread.is_alive() else 0)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_signal_handler_may_close_while_the_same_thread_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RecordingWriter(tmp_path, {})
    writer.digests(rows(0))
    write = os.write
    once = iter([True])

    def interrupted(fd: int, content: memoryview) -> int:
        done = write(fd, content)
        if next(once, False):
            writer.close({"exit": {"code": 143}})
        return done

    monkeypatch.setattr(files.os, "write", interrupted)
    writer.digests(rows(1))
    monkeypatch.undo()
    rank = Rank(tmp_path)
    assert rank.session["exit"] == {"code": 143}
    assert rank.digests().num_rows == 2 * len(SITES)
    assert rank.problems == []


def test_threads_take_turns(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, {}, segment_bytes=50_000)

    def work(number: int) -> None:
        for step in range(30):
            writer.digests(rows(1000 * number + step))
            writer.scalars(step, {"loss": number})
            writer.event("step", of=number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    rank = Rank(tmp_path)
    table = rank.digests()
    assert table["ord"].to_pylist() == list(range(4 * 30 * len(SITES)))
    steps = table["step"].to_numpy().reshape(-1, len(SITES))
    assert (steps == steps[:, :1]).all(), "batches do not mix"
    assert len(np.unique(steps)) == 120
    assert (len(rank.events), rank.scalars().num_rows, rank.problems) == (120, 120, [])
