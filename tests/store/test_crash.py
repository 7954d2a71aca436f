"""A recording is readable while it is written, after a kill -9, and whatever was cut off or damaged."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_sample import SITES, rows, write_run

from tensonde.errors import RecordingError, TensondeError, UsageError
from tensonde.store.query import query
from tensonde.store.reader import Rank, Recording
from tensonde.store.writer import RecordingWriter

CHILD = f"""
import os, sys, time
import numpy as np
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from store_sample import rows, SITES
from tensonde.model.moment import Moment, Phase
from tensonde.store.writer import RecordingWriter

writer = RecordingWriter(Path(sys.argv[1]), {{"rank": 0}}, segment_bytes=400_000)
for site in SITES:
    writer.site(site)
batch = rows(0, 200)
for step in range(100_000):
    batch["step"] = step
    writer.scalars(step, {{"loss": step / 2}})
    writer.digests(batch)
    writer.event("step", step=step)
    if step % 10 == 0:
        writer.value("fc1:out", Moment(step, Phase.FORWARD), bytes(4000), "float32", (1000,))
    os.write(1, b"%d\\n" % step)
    time.sleep(0.001)
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE)


def whole(rank: Rank, acknowledged: int) -> None:
    """Every batch up to the acknowledged step is there, whole and in order."""
    table = rank.digests(columns=["ord", "step"])
    steps = table["step"].to_numpy()
    assert table["ord"].to_pylist() == list(range(len(steps)))
    assert len(steps) % 200 == 0
    assert (steps == np.repeat(np.arange(len(steps) // 200), 200)).all()
    assert len(steps) // 200 > acknowledged
    assert rank.scalars("loss")["value"].to_pylist()[: acknowledged + 1] == [n / 2 for n in range(acknowledged + 1)]
    assert [event["step"] for event in rank.events][: acknowledged + 1] == list(range(acknowledged + 1))
    assert len(rank.values) > acknowledged // 10
    assert len(rank.sites) == len(SITES)


def test_reading_while_another_process_writes(tmp_path: Path) -> None:
    child = start(tmp_path)
    assert child.stdout is not None
    try:
        seen = []
        for _ in range(12):
            acknowledged = int(child.stdout.readline())
            rank = Rank(tmp_path)
            assert rank.live
            assert rank.state == "live"
            whole(rank, acknowledged)
            seen.append(rank.digests(columns=["ord"]).num_rows)
            for _ in range(random.randrange(12)):
                child.stdout.readline()
        assert seen == sorted(seen)
        assert seen[-1] > seen[0]
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("attempt", range(8))
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path, attempt: int) -> None:
    child = start(tmp_path)
    assert child.stdout is not None
    acknowledged = int(child.stdout.readline())
    time.sleep(random.uniform(0, 0.4))
    child.send_signal(signal.SIGKILL)
    for line in child.communicate()[0].splitlines():
        acknowledged = int(line)
    rank = Rank(tmp_path)
    whole(rank, acknowledged)
    assert not rank.live
    assert rank.state == "killed"
    # At most the message in flight was torn.
    assert len([problem for problem in rank.problems if "cut off" in problem]) == len(rank.problems) <= 1


def test_a_killed_child_that_nobody_waited_for_is_not_live(tmp_path: Path) -> None:
    child = start(tmp_path)
    assert child.stdout is not None
    child.stdout.readline()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert Rank(tmp_path).state == "killed"
    child.communicate()


def test_a_live_segment_cut_at_every_byte_keeps_its_earlier_batches(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, {})
    path = tmp_path / "digests" / "000000.arrows"
    ends = []
    for step in range(3):
        writer.digests(rows(step, 2))
        ends.append(path.stat().st_size)
    content = path.read_bytes()
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        rank = Rank(tmp_path)
        expected = sum(end <= length for end in ends)
        assert rank.digests(columns=["step"])["step"].to_pylist() == sorted([*range(expected)] * 2)
        if length not in (0, *ends) and length > ends[0]:
            assert "cut off after" in rank.problems[0]
    assert rank.problems == []


def everything(path: Path) -> tuple[int, list[str]]:
    """Reads all there is; returns the number of digests of rank 1 and the problems."""
    recording = Recording.open(path)
    count = 0
    for rank in recording.ranks:
        count = rank.digests().num_rows
        rank.scalars()
        _ = (rank.session, rank.sites, rank.hits, rank.events, rank.findings, rank.state, rank.seconds)
        for value in rank.values:
            with contextlib.suppress(RecordingError):
                rank.load(value)
    return count, recording.problems


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("sample"))


def files(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())


def test_any_file_cut_anywhere_is_never_a_crash(sample: Path, tmp_path: Path) -> None:
    chance = random.Random(1)
    shutil.copytree(sample, tmp_path / "copy")
    for name in files(sample):
        content = (sample / name).read_bytes()
        for offset in sorted(chance.sample(range(len(content)), min(25, len(content)))):
            (tmp_path / "copy" / name).write_bytes(content[:offset])
            try:
                _, problems = everything(tmp_path / "copy")
            except TensondeError:
                assert name == "run.json", f"{name} cut at {offset} keeps the recording from opening"
            else:
                closed = name.endswith((".parquet", ".safetensors", ".json"))
                if closed and content[offset:].strip():
                    assert any(Path(name).name in problem for problem in problems), (name, offset)
        (tmp_path / "copy" / name).write_bytes(content)
    assert everything(tmp_path / "copy") == (160, [])


def test_any_file_with_any_bytes_changed_is_never_a_crash(sample: Path, tmp_path: Path) -> None:
    chance = random.Random(2)
    shutil.copytree(sample, tmp_path / "copy")
    for name in files(sample):
        content = (sample / name).read_bytes()
        for attempt in range(12):
            changed = bytearray(content)
            for _ in range(chance.choice([1, 1, 8, 64])):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            (tmp_path / "copy" / name).write_bytes(changed)
            try:
                everything(tmp_path / "copy")
                if "digests/00" in name and attempt < 6:
                    query(Recording.open(tmp_path / "copy"), "SELECT sum(norm), max(name) FROM digests")
            except TensondeError:
                assert name == "run.json", name
        (tmp_path / "copy" / name).write_bytes(content)
    assert everything(tmp_path / "copy") == (160, [])


def test_a_damaged_page_costs_its_rows_and_no_others(sample: Path, tmp_path: Path) -> None:
    shutil.copytree(sample, tmp_path / "copy")
    path = tmp_path / "copy" / "rank0" / "digests" / "000001.parquet"
    content = bytearray(path.read_bytes())
    group = pq.read_metadata(path).row_group(0)
    norm = next(group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == "norm")
    content[norm.data_page_offset + norm.total_compressed_size - 3] ^= 1
    path.write_bytes(content)
    recording = Recording.open(tmp_path / "copy")
    assert recording.ranks[0].digests(columns=["step", "min"]).num_rows == 160, "only norm is damaged"
    assert recording.ranks[0].digests(columns=["step", "norm"]).num_rows == 160 - group.num_rows
    assert "000001.parquet is damaged" in recording.problems[0]
    counted = query(recording, "SELECT count(norm) AS n FROM digests WHERE rank = 0 OR norm IS NOT NULL")
    assert counted["n"].to_pylist() == [320 - group.num_rows]


def test_a_conversion_that_was_interrupted_is_read_once(tmp_path: Path) -> None:
    """Killed between the Parquet file's arrival and the removal of the stream, or before."""
    run = write_run(tmp_path)
    digests = run / "rank1" / "digests"
    (live,) = digests.glob("*.arrows")
    batches = pa.ipc.open_stream(live.read_bytes()).read_all
    (digests / "000002.parquet.tmp").write_bytes(b"half")
    assert Recording.open(run).ranks[1].digests().num_rows == 160
    pq.write_table(batches(), digests / "000002.parquet")
    assert Recording.open(run).ranks[1].digests().num_rows == 160
    (digests / "000002.parquet").write_bytes(b"PAR1 damaged PAR1")
    recording = Recording.open(run)
    assert recording.ranks[1].digests().num_rows == 160, "the stream still stands in for the damaged file"
    assert len(recording.problems) == 1


def test_manifests_that_cannot_be_opened(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    manifest = json.loads((run / "run.json").read_text())
    cases = {
        json.dumps({**manifest, "format": 7}): r"format 7, and this Tensonde reads up to 2; upgrade Tensonde",
        json.dumps({**manifest, "format": "x"}): "its format is 'x'",
        "{": "damaged",
        "[]": "holds a list where a dict belongs",
        "[" * 100_000: "nested too deeply",
    }
    for content, message in cases.items():
        (run / "run.json").write_text(content)
        with pytest.raises(UsageError, match=message):
            Recording.open(run)
