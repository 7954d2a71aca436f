"""`tensonde query`: SQL from the command line, to a table, to other programs and to files."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tensonde.cli.commands.query import query
from tensonde.errors import UsageError

GOLDEN = Path(__file__).parent.parent / "golden" / "v1"
BAD = "SELECT site, min(step) AS step FROM digests WHERE nans > 0 GROUP BY site ORDER BY min(ord)"


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the golden recording at .tensonde/runs/demo of the current folder."""
    shutil.copytree(GOLDEN, tmp_path / ".tensonde" / "runs" / "demo")
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".tensonde" / "runs" / "demo"


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(query, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_without_a_recording_the_newest_run_is_asked(demo: Path) -> None:
    assert run(BAD).stdout == run("demo", BAD).stdout


def test_a_table(demo: Path) -> None:
    rows = [line.split() for line in run("demo", BAD).stdout.splitlines()]
    assert rows[:3] == [["site", "step"], ["fc2:out[0]", "12"], ["loss:out", "12"]]
    assert len(rows) == 7
    assert "\x1b" not in run("demo", BAD).stdout
    limited = run("demo", "SELECT * FROM digests", "--limit", "3").stdout
    assert "… and 317 more rows; --limit 0 shows all" in limited


def test_json(demo: Path) -> None:
    hits = json.loads(run("demo", "SELECT * FROM hits ORDER BY rank", "--json").stdout)
    assert [hit["step"] for hit in hits] == [12, 20]
    assert hits[0]["actual"] == {"nan": 64.0, "absmax": "Infinity"}
    assert hits[0]["preset"] == {}
    assert json.loads(run("demo", "SELECT * FROM hits WHERE false", "--json").stdout) == []


def test_csv(demo: Path) -> None:
    sql = "SELECT step, absmax, exponents FROM digests WHERE rank = 0 AND site = 'loss:out' ORDER BY step"
    rows = list(csv.DictReader(io.StringIO(run("demo", sql, "--csv").stdout)))
    assert len(rows) == 20
    assert len(json.loads(rows[0]["exponents"])) == 32
    assert float(rows[0]["absmax"]) > 1
    assert rows[12]["absmax"] == ""


def test_several_recordings(demo: Path) -> None:
    shutil.copytree(demo, demo.parent / "other")
    result = run(
        "demo",
        ".tensonde/runs/other",
        "SELECT run, count(*) AS n FROM digests GROUP BY run ORDER BY run",
        "--csv",
    )
    assert result.stdout == "run,n\ndemo,320\nother,320\n"


def test_files(demo: Path, tmp_path: Path) -> None:
    sql = "SELECT * FROM digests ORDER BY rank, ord"
    for name in ("out.parquet", "out.csv", "out.json"):
        assert run("demo", sql, "--output", name).stdout == ""
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 320
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 321
    assert len(json.loads((tmp_path / "out.json").read_text())) == 320
    (tmp_path / "out.csv").write_text("mine")
    with pytest.raises(UsageError, match=r"out\.csv exists; give another name, or --force to replace it"):
        run("demo", sql, "--output", "out.csv")
    assert (tmp_path / "out.csv").read_text() == "mine"
    run("demo", "SELECT 1 AS a", "--output", "out.csv", "--force")
    assert (tmp_path / "out.csv").read_text() == "a\n1\n"
    with pytest.raises(UsageError, match=r"end it in \.parquet, \.csv, \.json"):
        run("demo", sql, "--output", "out.xls")
    with pytest.raises(UsageError, match="cannot be written"):
        run("demo", sql, "--output", "no/such/folder/out.csv")


def test_a_query_that_fails_leaves_the_file(demo: Path, tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("mine")
    with pytest.raises(UsageError, match="The query failed"):
        run("demo", "SELECT nothing FROM digests", "--output", "out.csv", "--force")
    assert (tmp_path / "out.csv").read_text() == "mine"


def test_mistakes(demo: Path) -> None:
    with pytest.raises(UsageError, match="needs a recording and SQL"):
        run("demo")
    with pytest.raises(UsageError, match="--json and --csv exclude each other"):
        run("demo", "SELECT 1", "--json", "--csv")
    with pytest.raises(UsageError, match="Permission Error"):
        run("demo", "SELECT * FROM read_csv('/etc/passwd')")
    assert run().exit_code == 2


def test_damage_is_told_beside_the_answer(demo: Path) -> None:
    (demo / "rank0" / "digests" / "000000.parquet").write_bytes(b"rubbish")
    result = run("demo", "SELECT count(*) AS n FROM digests", "--csv")
    assert result.stdout.startswith("n\n")
    assert int(result.stdout.split()[1]) < 320
    assert "rank0/digests/000000.parquet cannot be read" in result.stderr


def test_the_columns_can_be_listed(demo: Path) -> None:
    page = run("demo", "DESCRIBE digests").stdout
    assert "exponents" in page
    assert "USMALLINT[32]" in page


def test_help_shows_examples() -> None:
    assert "tensonde query demo 'SELECT * FROM digests' --output digests.parquet\n" in run("--help").stdout


def test_a_file_name_that_is_no_utf8(demo: Path) -> None:
    """Recorded by a lone surrogate, which no table can hold."""
    for path in demo.rglob("sites.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[0]["source"] = {"file": "tr\udce4in.py", "line": 3, "code": "x"}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "tr\\udce4in.py:3" in run("demo", "SELECT file || ':' || line FROM sites WHERE line = 3").stdout
