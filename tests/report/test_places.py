"""One problem in many places is one finding; what was not watched is said once; nothing printed can steer a terminal."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from launch import Foundry
from tensonde.cli.show.covered import coverage_notes, modules_line
from tensonde.cli.show.outcome import finish, show_finding
from tensonde.cli.show.screen import Screen, table
from tensonde.debugger.terminal import ScriptReader, Terminal
from tensonde.diagnose.case import Case
from tensonde.diagnose.diagnose import diagnose
from tensonde.diagnose.places import gathered
from tensonde.diagnose.rule import RULES, Rule
from tensonde.model.finding import Finding
from tensonde.model.printable import printable
from tensonde.model.site import SourceLine
from tensonde.store.codec import finding_in, finding_out
from tensonde.store.reader import Recording

GOLDEN = Path(__file__).parent.parent / "golden" / "v1"
NASTY = "\x1b]0;owned\x07\x1b[31mname\u202e"


def dead(site: str, **more: object) -> Finding:
    return Finding("units-dead", "warning", f"{site} is dead", "look", site=f"{site}:out", **more)  # type: ignore[arg-type]


def test_the_same_in_every_layer_and_on_every_rank() -> None:
    found = gathered([dead(f"layers.{k}", rank=rank, step=7) for rank in (0, 1) for k in range(5)])
    (only,) = found
    assert only.title == "layers.0 is dead"
    assert [(place.rank, place.site) for place in only.places][:6:5] == [(0, "layers.0:out"), (1, "layers.0:out")]
    assert len(only.places) == 10
    assert finding_in(json.loads(json.dumps(finding_out(only)))) == only
    out = io.StringIO()
    show_finding(Screen(file=out, width=200), only)
    assert "layers.0 is dead  and 9 more like it  (step 7)" in out.getvalue()
    assert "layers.0:out, layers.1:out, layers.2:out and 2 more; on ranks 0, 1" in out.getvalue()


def test_again_and_again() -> None:
    flickering = [Finding("watchpoint", "info", "norm > 3 holds in fc:out", "look", step=k) for k in range(0, 100, 2)]
    other = Finding("watchpoint", "info", "norm > 4 holds in fc:out", "look", step=1)
    first, second = gathered([*flickering, other])
    assert (len(first.places), second.places) == (50, ()), "another condition is another finding"


def test_different_problems_stay_apart() -> None:
    line = SourceLine("train.py", 3)
    kept = [
        Finding("nan-origin", "error", "log of 0 gives NaN", "a", source=line),
        Finding("nan-origin", "error", "division by 0 gives Inf", "a", source=line),
        Finding("units-dead", "error", "fc is dead", "a"),
        Finding("units-dead", "warning", "fc is dead", "a"),
    ]
    assert gathered(kept) == kept


def test_causes_are_found_again() -> None:
    one = Finding("nan-origin", "error", "log of 0 gives NaN", "a", step=2)
    after = [
        Finding("nonfinite", "error", f"NaN appears in l.{k}", "a", site=f"l.{k}:out", caused_by=0) for k in range(3)
    ]
    last = Finding("exception", "error", "ValueError: nan", "a", caused_by=2)
    found = gathered([one, *after, last])
    assert [finding.caused_by for finding in found] == [None, 0, 1]


def test_findings_belong_to_the_rank_that_recorded_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule need not say which rank it looks at. The file of each process counts causes among its own."""
    own = {0: ["first thing"], 1: ["a cause", "an effect"]}

    def check(case: Case) -> list[Finding]:
        titles = own[case.rank.rank]
        return [case.finding(title, "a", caused_by=k - 1 if k else None) for k, title in enumerate(titles)]

    monkeypatch.setattr("tensonde.diagnose.diagnose.RULES", [Rule("r", check)])
    folder = shutil.copytree(GOLDEN, tmp_path / "run")
    findings = diagnose(Recording.open(folder))
    assert [(f.title, f.rank) for f in findings] == [("first thing", 0), ("a cause", 1), ("an effect", 1)]
    finish(folder, 0, quiet=True)
    assert json.loads((folder / "rank1" / "findings.json").read_text())[1]["caused_by"] == 0
    assert Recording.open(folder).findings == findings
    assert RULES


def test_coverage_is_said_once_and_only_what_helps() -> None:
    never = {f"attn.{k}": "was never called" for k in range(20)}
    coverage = {"modules": 30, "modules_watched": 10, "parameters": 4, "not_watched": never}
    assert modules_line(coverage) == "10/10 modules"
    assert coverage_notes({"coverage": coverage}) == []
    coverage["not_watched"] = {**never, **{f"q.{k}": "its tensors cannot be read" for k in range(5)}}
    assert modules_line(coverage) == "10/15 modules"
    assert coverage_notes({"coverage": coverage}) == [
        "not watched: q.0, q.1, q.2 and 2 more (its tensors cannot be read)"
    ]
    (lost,) = coverage_notes({"coverage": {}, "failures": {"entering a module": 3}})
    assert "coverage was lost" in lost
    unseen = {"coverage": {"modules": 1, "modules_watched": 0, "not_watched": {"model": "was never called"}}}
    assert coverage_notes(unseen) == [], "nobody looked"
    (why,) = coverage_notes({**unseen, "overhead": {"levels": {"full": 2}}})
    assert "model(x)" in why


def test_control_characters_are_spelt_out() -> None:
    out = io.StringIO()
    screen = Screen(file=out, force_terminal=True, color_system="truecolor", width=80)
    screen.print(NASTY, style="bold", markup=False)
    screen.print(table(("name",), [(NASTY,)]))
    plain = out.getvalue()
    assert "\\x1b]0;owned\\x07\\x1b[31mname\\u202e" in plain
    assert "\x1b[1m" in plain, "its own colours stay"
    assert "\x07" not in plain
    assert "\x1b]" not in plain
    sink = io.StringIO()
    terminal = Terminal(sink, ScriptReader(None, sink), interactive=False, colour=True)
    terminal.table([[NASTY, (NASTY, "bad")]])
    assert "\x1b]" not in sink.getvalue()
    assert "\x1b[1;31m" in sink.getvalue()
    assert printable("tab\tand\nline, ü, 模型") == "tab\tand\nline, ü, 模型"


def test_a_checkpoint_cannot_steer_the_terminal(tmp_path: Path) -> None:
    from click.testing import CliRunner
    from safetensors.numpy import save_file

    from tensonde.cli.commands.ckpt import ckpt

    save_file({NASTY: np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
    said = CliRunner().invoke(ckpt, [str(tmp_path / "model.safetensors")])
    assert said.exit_code == 0
    assert "\x1b" not in said.output
    assert "\\x1b[31mname" in said.output


CELLS = """
import sys, types
class Events:
    def __init__(self): self.calls = []
    def register(self, name, call): self.calls.append((name, call))
shell = types.SimpleNamespace(events=Events())
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
import torch, tensonde, tensonde.api
from torch import nn
from tensonde.store.reader import Recording
tensonde.attach()
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def cell(steps):
    for _ in range(steps):
        loss = model(torch.randn(4, 4)).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
run = tensonde.api.current().session.options.run
cell(7)
[call(None) for name, call in shell.events.calls if name == "post_run_cell"]
(rank,) = Recording.open(run).ranks
assert rank.scalars("loss").num_rows == 7, rank.scalars("loss").num_rows
assert rank.session["steps"] == 7
cell(2)
page = tensonde.view(run).html
assert "No problem found so far" in page
assert Recording.open(run).ranks[0].scalars("loss").num_rows == 9
tensonde.watch("weight:grad", "norm >= 0")
cell(2)
assert "holds in the gradient" in tensonde.view(run).html or "norm &gt;= 0" in tensonde.view(run).html
inspection = tensonde.inspect(torch.mul, torch.ones(3), torch.ones(3))
assert "mul" in tensonde.view(inspection).html
"""


def test_a_cell_of_a_notebook_is_in_the_recording_when_it_has_run(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(CELLS, tmp_path)
    assert ran.code == 0, ran.err


def test_a_session_of_a_newer_format_is_named(tmp_path: Path) -> None:
    folder = shutil.copytree(GOLDEN, tmp_path / "run")
    path = folder / "rank0" / "session.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    recording = Recording.open(folder)
    assert recording.ranks[0].session
    (problem,) = recording.problems
    assert "format 99" in problem
    assert "upgrade Tensonde" in problem


def test_the_newest_run_is_the_newest_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, started in (
        (".tensonde/runs/old", "2026-01-01"),
        ("asked", "2026-01-02"),
        (".tensonde/runs/new", "2026-01-03"),
    ):
        folder = shutil.copytree(GOLDEN, tmp_path / name)
        manifest = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**manifest, "started": started}))
    monkeypatch.chdir(tmp_path)
    assert Recording.open(".").name == "new"
    shutil.rmtree(tmp_path / ".tensonde/runs/new")
    assert Recording.open(".").name == "asked"
