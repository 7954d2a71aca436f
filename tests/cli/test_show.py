"""`tensonde show`: the page of a run, the history of a site, and the mistakes a user makes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tensonde.cli.commands.show import parse_steps, show
from tensonde.cli.show.plot import number, plot, sparkline
from tensonde.errors import UsageError

GOLDEN = Path(__file__).parent.parent / "golden" / "v1"


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the golden recording at .tensonde/runs/demo of the current folder."""
    shutil.copytree(GOLDEN, tmp_path / ".tensonde" / "runs" / "demo")
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".tensonde" / "runs" / "demo"


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(show, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def lines(*arguments: str) -> list[str]:
    return [" ".join(line.split()) for line in run(*arguments).stdout.splitlines()]


def test_the_page_of_a_run(demo: Path) -> None:
    page = lines("demo")
    assert page[0] == "demo killed"
    for line in (
        "script train.py --lr 0.1",
        "framework torch 2.13.0, cpu, Python 3.11.7",
        "ranks 2 (rank 0 finished, rank 1 killed)",
        "steps 20",
        "exit code 0",
        "overhead 3.0 % per step (budget 5 %)",
        "coverage sites 8, watched 8",
        "0 error 12 log of 0 gives NaN train.py:44 clamp p away from 0",
        "1 error 12 the loss is NaN (caused by 0) see its cause",
        "12 forward 0 fc2:out[0] nan or inf nan 64, absmax Inf",
    ):
        assert line in page
    assert "loss 1 NaN █▄▃▂▂▂▁▁▁▁▁▁!!!!!!!!" in page
    sites = page[page.index("Sites that stand out") + 2 :]
    assert sites[0].startswith("fc2:out[0] Linear 40")
    assert sites[0].endswith("NaN from step 12"), "the first that went bad is the first in the table"
    assert [line.split()[0] for line in sites if "NaN" not in line] == ["fc1:out", "fc1:in"]
    assert "\x1b" not in run("demo").stdout, "no colours where there is no terminal"


def test_one_rank_and_some_steps(demo: Path) -> None:
    page = lines("demo", "--rank", "1", "--steps", "0-11")
    assert page[0] == "demo killed"
    assert "ranks 1 (rank 1 killed)" in page
    assert "Hits" not in page
    assert not any("NaN" in line for line in page)
    with pytest.raises(UsageError, match="demo has no rank 7; its ranks are 0, 1"):
        run("demo", "--rank", "7")


def test_a_limit_is_said(demo: Path) -> None:
    page = lines("demo", "--limit", "1")
    assert page.count("… and 1 more; --limit 0 shows all") == 2
    assert not any("the loss is NaN" in line for line in page)


def test_plots(demo: Path) -> None:
    page = run("demo", "--plot").stdout
    assert "loss over steps" in page
    assert "lr/0 over steps" in page
    assert "⢣" in page
    assert "! not finite" in page


def test_json(demo: Path) -> None:
    facts = json.loads(run("demo", "--json").stdout)
    assert (facts["run"], facts["state"], facts["steps"]) == ("demo", "killed", 20)
    assert [rank["state"] for rank in facts["ranks"]] == ["finished", "killed"]
    assert facts["scalars"]["loss"][12] == [12, "NaN"]
    assert facts["findings"][0]["source"] == {
        "file": "train.py",
        "line": 44,
        "code": "loss = (p * p.log()).sum()",
    }
    assert facts["sites"][0]["flags"] == ["NaN"]
    assert facts["problems"] == []


def test_damage_is_shown(demo: Path) -> None:
    (demo / "rank0" / "digests" / "000000.parquet").write_bytes(b"rubbish")
    page = lines("demo")
    assert page[-2] == "Damage"
    assert "rank0/digests/000000.parquet cannot be read" in page[-1]


def test_a_recording_without_anything(demo: Path) -> None:
    shutil.rmtree(demo / "rank0")
    shutil.rmtree(demo / "rank1")
    page = lines("demo")
    assert page[0] == "demo empty"
    assert "ranks none" in page


def test_the_history_of_a_site(demo: Path) -> None:
    pytest.importorskip("tensonde.watch.pattern")
    page = lines("demo", "fc2:out", "--steps", "11-12", "--rank", "0")
    assert page[3] == "step phase call site count nan inf zeros min max mean std norm"
    assert page[4].startswith("11 forward 0 fc2:out[0] 64 0 0 3.1%")
    assert page[5] == "12 forward 0 fc2:out[0] 64 64 0 6.2% – – – – 0"
    rows = json.loads(run("demo", "**:grad", "--json").stdout)["rows"]
    assert len(rows) == 2 * 20 * 2
    assert {row["site"] for row in rows} == {"fc1.weight:grad", "fc2.weight:grad"}
    assert rows[0]["phase"] == "backward"
    plotted = run("demo", "fc1:out", "--plot", "--field", "absmax", "--rank", "0").stdout
    assert "fc1:out absmax" in plotted
    assert "the last 2 of 40; --limit 0 shows all, --steps a part" in lines("demo", "fc1:out", "--limit", "2")
    assert lines("demo", "fc1:out", "--steps", "99") == ["no digest of that site in those steps"]


def test_an_unknown_site_gets_the_nearest_names(demo: Path) -> None:
    pytest.importorskip("tensonde.watch.pattern")
    with pytest.raises(UsageError, match=r"no site of demo matches 'fc1.wieght:grad'; did you mean fc1\.weight:grad"):
        run("demo", "fc1.wieght:grad")


def test_wrong_recordings(demo: Path) -> None:
    with pytest.raises(UsageError, match="nothing does not exist"):
        run("nothing")
    manifest = json.loads((demo / "run.json").read_text())
    (demo / "run.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(UsageError, match="format 99, and this Tensonde reads up to 2; upgrade Tensonde"):
        run("demo")


def test_steps_as_a_user_writes_them() -> None:
    assert parse_steps(None) is None
    assert parse_steps("10") == (10, 10)
    assert parse_steps("10-20") == (10, 20)
    assert parse_steps("-20") == (0, 20)
    assert parse_steps("10-")[0] == 10  # type: ignore[index]
    for text in ("", "-", "a-b", "1-2-3", "1.5", "20-10"):
        with pytest.raises(UsageError, match="--steps"):
            parse_steps(text)


def test_help_shows_examples() -> None:
    page = run("--help").stdout
    assert "tensonde show demo 'fc1:out' --steps 10-20\n" in page
    assert run("--help").exit_code == 0
    assert run("demo", "--field", "nrom").exit_code == 2


def test_completion(demo: Path) -> None:
    context = show.make_context("show", ["demo"])
    recording, site = show.params[:2]
    items = recording.shell_complete(context, "de")
    assert [(item.value, item.type) for item in items] == [("demo", "plain"), ("de", "dir")]
    assert [item.value for item in site.shell_complete(context, "fc2")] == [
        "fc2:out[0]", "fc2.weight:grad", "fc2.weight:value",
    ]  # fmt: skip
    (demo / "rank0" / "sites.jsonl").write_text("{broken")
    assert isinstance(site.shell_complete(context, "fc"), list)
    assert site.shell_complete(show.make_context("show", ["nothing"]), "fc") == []


def test_numbers_and_lines() -> None:
    assert [number(x) for x in (None, float("nan"), float("-inf"), 3.0, 1e300, 0.1)] == [
        "–", "NaN", "-Inf", "3", "1e+300", "0.1",
    ]  # fmt: skip
    assert sparkline([0, 1, float("nan"), 2]) == "▁▅!█"
    assert sparkline([1e308, -1e308]) == "█▁"
    assert sparkline([7, 7]) == "▁▁"
    assert len(sparkline(list(range(1000)), 50)) == 50
    assert sparkline([0.0] * 500 + [float("nan")] + [0.0] * 499, 50).count("!") == 1, "thinning hides no NaN"
    assert plot([0, 1], [None, float("nan")], title="x") == "x: no finite value in 2 steps"
    drawn = plot([0, 1, 2], [-1e308, 1e308, None], title="x", width=20, height=4).splitlines()
    assert len(drawn) == 7
    assert drawn[1].startswith(" 1e+308 │")
