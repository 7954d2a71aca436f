"""Export of a recording: read back by the programs that it is for."""

from __future__ import annotations

import csv
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tensonde.cli.main import cli
from tensonde.errors import TensondeError
from tensonde.store.reader import Recording

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "demo"))


def export(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["export", *map(str, words)], catch_exceptions=True)


def refused(*words: str | Path) -> str:
    result = export(*words)
    assert isinstance(result.exception, TensondeError)
    return str(result.exception)


def losses(demo: Path) -> list[tuple[int, float]]:
    table = Recording.open(demo).ranks[0].scalars("loss")
    return list(zip(table["step"].to_pylist(), table["value"].to_pylist(), strict=True))


def test_tensorboard(demo: Path, tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert export(demo, tmp_path / "board", "--fields", "norm,absmax").exit_code == 0
    read = events.EventAccumulator(str(tmp_path / "board" / "rank0"), {"scalars": 0, "tensors": 0})
    read.Reload()
    expected = losses(demo)
    assert expected
    found = [(event.step, event.value) for event in read.Scalars("loss")]
    assert [step for step, _ in found] == [step for step, _ in expected]
    assert [value for _, value in found] == pytest.approx([value for _, value in expected], nan_ok=True)
    rank = Recording.open(demo).ranks[0]
    site = next(iter(rank.sites.values()))
    rows = rank.digests(sites=[site.id]).to_pylist()
    assert [event.value for event in read.Scalars(f"absmax/{site.address}")] == pytest.approx(
        [row["absmax"] for row in rows], rel=1e-6, nan_ok=True
    )
    times = [event.wall_time for event in read.Scalars("loss")]
    assert times == sorted(times)
    assert any(tag.startswith("findings/0") for tag in read.Tags()["tensors"])
    assert (tmp_path / "board" / "rank1").is_dir()


def test_csv_and_parquet(demo: Path, tmp_path: Path) -> None:
    assert export(demo, tmp_path / "loss.csv").exit_code == 0
    rows = list(csv.DictReader((tmp_path / "loss.csv").read_text().splitlines()))
    found = [(int(r["step"]), float(r["value"])) for r in rows if r["name"] == "loss" and r["rank"] == "0"]
    assert repr(found) == repr(losses(demo)), "to the last digit, and NaN where it was"
    assert export(demo, tmp_path / "all", "--to", "parquet").exit_code == 0
    names = {path.stem for path in (tmp_path / "all").iterdir()}
    assert names == {"digests", "sites", "scalars", "hits", "findings", "events", "collectives", "whole"}
    digests = pq.read_table(tmp_path / "all" / "digests.parquet")
    assert digests.num_rows == sum(rank.digests().num_rows for rank in Recording.open(demo).ranks)
    assert export(demo, tmp_path / "d.parquet", "--what", "hits").exit_code == 0


@pytest.mark.companions
def test_wandb_offline(demo: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed (dependency group companions)")
    result = export(demo, tmp_path / "offline", "--to", "wandb")
    assert result.exit_code == 0, result.exception
    (file, _) = sorted((tmp_path / "offline").glob("wandb/offline-run-*/*.wandb"))
    found = []
    for record in records(file.read_bytes()):
        if record.WhichOneof("record_type") == "history":
            items = {"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
            found += [float(items["loss"])] if "loss" in items else []
    by_step = dict(losses(demo))  # of several in one step, the last
    assert repr(found) == repr(list(by_step.values()))


def records(content: bytes) -> Iterator[Any]:
    """A W&B file is a LevelDB log: after 7 bytes, records in pieces that do not cross blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    place, whole = 7, b""
    while place + 7 <= len(content):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        size, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        whole += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            record = Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def test_wrong_use(demo: Path, tmp_path: Path) -> None:
    assert "have no field 'size'" in refused(demo, tmp_path / "b", "--fields", "size")
    assert "ends in .csv, and --to parquet" in refused(demo, tmp_path / "a.csv", "--to", "parquet")
    (tmp_path / "there.csv").write_text("")
    assert "exists; give another name, or --force" in refused(demo, tmp_path / "there.csv")
    assert export(demo, tmp_path / "there.csv", "--force").exit_code == 0
    assert "does not exist" in refused(tmp_path / "nothing", tmp_path / "x")


def test_without_the_library(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert "needs wandb, which is not installed; run: pip install 'tensonde[wandb]'" in refused(
        demo, tmp_path / "w", "--to", "wandb"
    )
