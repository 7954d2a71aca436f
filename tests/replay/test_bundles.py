"""A step that went wrong is saved, and comes out bit for bit the same in another process and another folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bundle_trainings import BF16, HEAD, KINDS, elsewhere, replayed, train
from replay_trainings import line_of

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose
from tensonde.store.bundles import bundles_in, read_bundle


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_step_comes_out_the_same_elsewhere(kind: str, foundry: Foundry, tmp_path: Path) -> None:
    ran = train(foundry, KINDS[kind], tmp_path / "first")
    (original,) = [trace for trace in ran.rank.traces if trace.reason == "replay"]
    bundle = elsewhere(ran, tmp_path / "second")
    (ran.cwd / "script.py").unlink()
    outcome, again = replayed(foundry, bundle, tmp_path / "second")
    assert again.code == 0, again.err
    assert outcome["outcome"] == "performed", outcome
    assert outcome["different"] == []
    assert (outcome["exact"], outcome["reproduced"], outcome["error"]) == (True, True, "")
    assert outcome["compared"] > 3
    (trace,) = again.rank.traces
    assert [op.site for op in trace.ops] == [op.site for op in original.ops]
    assert [_stats(op.outputs) for op in trace.ops] == [_stats(op.outputs) for op in original.ops]
    assert (trace.step, trace.exact) == (7, True)
    finding = diagnose(again.recording)[0]
    assert finding.source is not None
    assert (finding.severity, finding.step) == ("error", 7)
    assert (finding.source.line, finding.source.file) == (line_of(HEAD + KINDS[kind]), "script.py")


def _stats(facts: object) -> str:
    return str([(fact.shape, fact.dtype, sorted(fact.stats.items())) for fact in facts])  # type: ignore[attr-defined]


SIDE_EFFECTS = """
import atexit, pathlib
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
atexit.register(lambda: pathlib.Path("at_exit").touch())
try:
    for step in range(10):
        x = torch.randn(16, 8)
        loss = F.cross_entropy(model(x), (x.sum(1) > 0).long())
        if step == BAD:
            loss = loss.log() / 0
        pathlib.Path(f"step{step}").touch()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
finally:
    pathlib.Path("finally").touch()
"""


def test_nothing_of_the_script_runs_after_its_first_call_of_the_model(foundry: Foundry, tmp_path: Path) -> None:
    bundle = elsewhere(train(foundry, SIDE_EFFECTS, tmp_path / "first"), tmp_path / "second")
    outcome, _ = replayed(foundry, bundle, tmp_path / "second")
    assert outcome["exact"]
    left = {path.name for path in (tmp_path / "second").iterdir()}
    assert left == {"script.py", "saved", "replay", "stdin", "stdout", "stderr"}


LARGE = """
X = torch.randn(100_000, 8)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    x = X[torch.randint(0, len(X), (16,))]
    loss = F.cross_entropy(model(x), (x.sum(1) > 0).long())
    if step == BAD:
        loss = loss * torch.tensor(float("inf"))  # HERE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_of_a_data_set_only_the_batch_is_saved(foundry: Foundry, tmp_path: Path) -> None:
    bundle = elsewhere(train(foundry, LARGE, tmp_path / "first"), tmp_path / "second")
    assert (bundle / "state.safetensors").stat().st_size < 20_000
    outcome, _ = replayed(foundry, bundle, tmp_path / "second")
    assert outcome["exact"]


def test_a_healthy_step_is_saved_when_asked_for(foundry: Foundry, tmp_path: Path) -> None:
    healthy = BF16.replace("step == BAD", "step == 99")
    ran = train(foundry, healthy, tmp_path / "first", save_steps=(0, 4))
    assert [path.name for path in bundles_in(ran.rank.folder)] == ["step0", "step4"]
    for number, bundle in enumerate(bundles_in(ran.rank.folder)):
        folder = tmp_path / f"second{number}"
        folder.mkdir()
        outcome, again = replayed(foundry, bundle, folder, script=ran.cwd / "script.py")
        assert (outcome["exact"], outcome["failure"]) == (True, None)
        assert diagnose(again.recording) == []


UNSAVEABLE = """
class Settings:
    bad = False

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 2)

    def forward(self, x, settings):
        return self.inner(x) / (0 if settings.bad else 1)

model, settings = Model(), Settings()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    settings.bad = step == BAD
    x = torch.randn(16, 8)
    loss = F.cross_entropy(model(x, settings), (x.sum(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_what_cannot_be_saved_is_said(foundry: Foundry, tmp_path: Path) -> None:
    ran = train(foundry, UNSAVEABLE, tmp_path / "first")
    (event,) = [event for event in ran.rank.events if event["kind"] == "bundle_declined"]
    assert (event["step"], event["why"]) == (7, "it has an argument of type Settings")
    assert [trace.exact for trace in ran.rank.traces if trace.reason == "replay"] == [True], "it is replayed here"
    assert not (ran.rank.folder / "bundles").exists()


@pytest.mark.parametrize(("limit", "why"), [(1000, "of tensors, more than the 1 kB that a bundle may have"), (0, None)])
def test_bundles_are_bounded(limit: int, why: str | None, foundry: Foundry, tmp_path: Path) -> None:
    ran = train(foundry, BF16, tmp_path / "first", bundle_bytes=limit)
    events = [event for event in ran.rank.events if event["kind"] == "bundle_declined"]
    assert not (ran.rank.folder / "bundles").exists()
    assert len(events) == (why is not None)
    assert why is None or events[0]["why"].endswith(why)


def test_another_model_is_not_taken_for_the_one_of_the_bundle(foundry: Foundry, tmp_path: Path) -> None:
    bundle = elsewhere(train(foundry, BF16, tmp_path / "first"), tmp_path / "second")
    script = tmp_path / "second" / "script.py"
    script.write_text(HEAD + BF16.replace("32", "33"))
    outcome, _ = replayed(foundry, bundle, tmp_path / "second")
    assert outcome == {
        "outcome": "not_built",
        "why": "model's parameter '0.weight' has the shape [33, 16] here, and [32, 16] in the bundle",
    }


def test_a_script_that_never_calls_the_model_replays_nothing(foundry: Foundry, tmp_path: Path) -> None:
    bundle = elsewhere(train(foundry, BF16, tmp_path / "first"), tmp_path / "second")
    (tmp_path / "second" / "script.py").write_text("import torch\nprint('over')\n")
    outcome, ran = replayed(foundry, bundle, tmp_path / "second")
    assert (outcome, ran.out) == ({}, "over\n")


def test_what_a_bundle_says_of_itself(foundry: Foundry, tmp_path: Path) -> None:
    ran = train(foundry, KINDS["attention"], tmp_path / "first")
    document = read_bundle(bundles_in(ran.rank.folder)[0])
    assert document["program"]["script"] == "script.py"
    assert list(document["program"]["files"]) == ["script.py"]
    assert [root["name"] for root in document["roots"]] == ["head", "model"]
    assert document["results"]["failure"]["op"] == "softmax"
    (event,) = [event for event in ran.rank.events if event["kind"] == "bundle_saved"]
    assert (event["step"], event["path"]) == (7, "bundles/step7")
    assert str(tmp_path) not in json.dumps(document), "a bundle can be given away"


FIRST = """
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    out = model(torch.randn(16, 8))
    loss = {loss}  # HERE
    {look}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FIRSTS = {
    "loss": FIRST.format(loss="(out.softmax(-1) * 0).log().mean()", look=""),
    "gradient": FIRST.format(loss="(out - out.detach()).square().sum(1).sqrt().mean()", look=""),
    "look": FIRST.format(loss="(out * 0).log().mean()", look="if not loss.isfinite(): break"),
}


@pytest.mark.parametrize("kind", FIRSTS)
def test_the_first_step_is_saved_as_well(kind: str, foundry: Foundry, tmp_path: Path) -> None:
    ran = train(foundry, FIRSTS[kind], tmp_path / "first")
    assert [path.name for path in bundles_in(ran.rank.folder)] == ["step0"]
    assert [trace.reason for trace in ran.rank.traces if trace.step == 0][:1] in (["first"], [])
    bundle = elsewhere(ran, tmp_path / "second")
    outcome, again = replayed(foundry, bundle, tmp_path / "second")
    assert outcome["exact"], outcome
    finding = diagnose(again.recording)[0]
    assert finding.source is not None
    assert (finding.step, finding.source.line) == (0, line_of(HEAD + FIRSTS[kind]))


IMPOSSIBLE = """
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
shift = torch.zeros(2)
for step in range(10):
    out = model(torch.randn(16, 8)) + shift
    shift.add_(0.01)
    loss = out.square().mean()
    if step in (BAD, BAD + 1):
        loss = loss / (loss.detach() * 0)  # HERE
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        p.grad.nan_to_num_(0, 0, 0)
    optimizer.step()
"""


def test_a_step_whose_inputs_changed_is_not_saved_and_the_next_is_traced(foundry: Foundry, tmp_path: Path) -> None:
    ran = train(foundry, IMPOSSIBLE, tmp_path / "first")
    (event,) = [event for event in ran.rank.events if event["kind"] == "replay_impossible"]
    assert (event["step"], event["why"]) == (7, "a tensor that the step had used was changed in place")
    assert [(trace.step, trace.reason) for trace in ran.rank.traces] == [(0, "first"), (8, "following")]
    assert bundles_in(ran.rank.folder) == []
    finding = diagnose(ran.recording)[0]
    assert finding.source is not None
    assert finding.source.line == line_of(HEAD + IMPOSSIBLE)


UNSEEN = """
import random
class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 2)

    def forward(self, x):
        return self.inner(x) * (1 + random.random())

model = Noisy()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    loss = model(torch.randn(16, 8)).square().mean()
    if step == BAD:
        loss = loss * torch.tensor([1.0, float("inf")])  # HERE
        loss = loss.sum() if False else (loss[0] + loss[1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_step_that_depends_on_what_tensonde_does_not_see(foundry: Foundry, tmp_path: Path) -> None:
    """The same op goes wrong, with other numbers: reproduced, but not bit for bit."""
    bundle = elsewhere(train(foundry, UNSEEN, tmp_path / "first"), tmp_path / "second")
    outcome, _ = replayed(foundry, bundle, tmp_path / "second")
    assert (outcome["exact"], outcome["reproduced"]) == (False, True)
    assert outcome["different"][0]["value"] == "model"
