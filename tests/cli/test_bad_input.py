"""Wrong use: one sentence, exit code 2, no traceback, and nothing made or overwritten."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from launch import Foundry
from tensonde.cli.main import main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("open('started', 'w')\n")
    return tmp_path


def refused(here: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """Runs `tensonde WORDS`, which must be refused; what it says."""
    before = {path: path.read_bytes() if path.is_file() else None for path in here.rglob("*")}
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr("sys.argv", ["tensonde", *words])
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main()
    after = {path: path.read_bytes() if path.is_file() else None for path in here.rglob("*")}
    said = err.getvalue()
    assert ended.value.code == 2, said
    assert after == before
    assert out.getvalue() == ""
    assert "Traceback" not in said
    assert said.strip()
    return said


def test_an_unknown_script_names_the_nearest(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused(here, monkeypatch, "run", "trian.py")
    assert "trian.py" in said
    assert "train.py" in said
    assert said.count("\n") == 1
    assert "no/such/train.py" in refused(here, monkeypatch, "run", "no/such/train.py")


def test_a_syntax_error_is_told_with_its_line(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "broken.py").write_text("x = 1\nif x\n    pass\n")
    said = refused(here, monkeypatch, "run", "broken.py")
    assert "broken.py" in said
    assert "line 2" in said
    assert said.count("\n") == 1
    (here / "binary.py").write_bytes(b"\0\1\2")
    assert "binary.py" in refused(here, monkeypatch, "run", "binary.py")


def test_a_folder_is_no_script(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "folder").mkdir()
    assert "folder" in refused(here, monkeypatch, "run", "folder")


def test_no_script_at_all(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(here, monkeypatch, "run")
    refused(here, monkeypatch, "run", "-m")


@pytest.mark.parametrize(
    ("watch", "expected"),
    [
        ("**:grad norm >", "norm >"),
        ("**:grad", "condition"),
        ("**:gradd nan", "grad"),
        ("**:out explodding", "exploding"),
        ("**:out norm > abc", "abc"),
        ("", ""),
    ],
)
def test_watchpoints_that_cannot_be_read(
    here: Path, monkeypatch: pytest.MonkeyPatch, watch: str, expected: str
) -> None:
    assert expected in refused(here, monkeypatch, "run", "--watch", watch, "train.py")


@pytest.mark.parametrize("budget", ["much", "-1", "5%%", "nan", "2000%", ""])
def test_budgets_that_are_none(here: Path, monkeypatch: pytest.MonkeyPatch, budget: str) -> None:
    said = refused(here, monkeypatch, "run", "--budget", budget, "train.py")
    assert repr(budget) in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("words", [["--on-hit", "explode"], ["--steps", "0"], ["--steps", "x"], ["--nonsense"]])
def test_options_that_do_not_exist(here: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    refused(here, monkeypatch, "run", *words, "train.py")


def test_a_recording_folder_that_cannot_be_made(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "file").write_text("mine")
    assert "file" in refused(here, monkeypatch, "run", "--record", "file/below", "train.py")
    assert "file" in refused(here, monkeypatch, "run", "--record", "file", "train.py")


def test_a_recording_folder_in_use_is_left_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "old").mkdir()
    (here / "old" / "notes.txt").write_text("precious")
    said = refused(here, monkeypatch, "run", "--record", "old", "train.py")
    assert "old" in said
    assert said.count("\n") == 1


def test_a_report_that_cannot_be_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "missing" in refused(here, monkeypatch, "run", "--report", "missing/report.json", "train.py")
    (here / "folder").mkdir()
    assert "folder" in refused(here, monkeypatch, "run", "--report", "folder", "train.py")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("budget = ", "tensonde.toml"),
        ("bugdet = '5%'", "budget"),
        ("on_hit = 'explode'", "explode"),
        ("budget = 'much'", "much"),
        ("budget = [1]", "budget"),
        ("recommended = 'perhaps'", "recommended"),
        ("[[watch]]\nsites = '**'\ncondition = 'norm >'", "tensonde.toml"),
        ("[[watch]]\nsites = '**'", "condition"),
        ("watch = 3", "watch"),
    ],
)
def test_configuration_files_that_are_wrong(
    here: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    (here / "tensonde.toml").write_text(text)
    assert expected in refused(here, monkeypatch, "run", "train.py")


def test_unknown_commands_and_recordings(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "tensonde run" in refused(here, monkeypatch, "rum", "train.py")
    assert "tensonde run train.py" in refused(here, monkeypatch, "train.py")
    refused(here, monkeypatch, "diagnose", "nowhere")
    (here / "old").mkdir()
    (here / "old" / "run.json").write_text('{"format": 99}')
    assert "99" in refused(here, monkeypatch, "diagnose", "old")
    (here / "old" / "run.json").write_text("garbage")
    assert "run.json" in refused(here, monkeypatch, "diagnose", "old")


TRAINING = """
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 4), nn.Linear(4, 1)
    def forward(self, x):
        return self.decoder(self.encoder(x))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    loss = model(torch.randn(4, 4)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
print(loss.item())
"""


@pytest.mark.parametrize("budget", [None, 0.05, 0.0])
def test_a_watchpoint_that_matches_no_site_is_told_once(foundry: Foundry, tmp_path: Path, budget: float | None) -> None:
    bare = foundry.bare(TRAINING, tmp_path)
    watch = [("encodr:out", "nan"), ("decoder:out", "norm > 0"), ("qqq.zzz:grad", "inf")]
    ran = foundry.watched(TRAINING, tmp_path, watch=watch, budget=budget)
    assert (ran.code, ran.out) == (bare.code, bare.out)
    told = [line for line in ran.err.splitlines() if "matches no site" in line]
    assert len(told) == 2
    assert "encodr:out nan" in told[0]
    assert "encoder:out" in told[0]
    assert "qqq.zzz:grad inf" in told[1]
    assert [hit.site for hit in ran.rank.hits][:1] == ["decoder:out"]


def test_what_is_watched_by_name_is_seen_at_every_step_without_a_budget(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(TRAINING, tmp_path, watch=[("decoder:out", "norm > 0")], budget=0.0)
    assert [row["step"] for row in ran.at("decoder:out")] == [0, 1, 2, 3]
    assert [row["step"] for row in ran.at("encoder:out")] == [0]
