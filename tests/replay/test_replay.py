"""A step that went wrong is run again exactly, and the training does not notice."""

from __future__ import annotations

from pathlib import Path

import pytest
from replay_trainings import findings, line_of, problems, run, script

from launch import Foundry, Ran

EVIDENCE = Path(__file__).parent.parent / "identity" / "scripts"

SKIPPING = f"""
import sys
sys.path.append({str(EVIDENCE)!r})
import evidence
import numpy as np
evidence.seed(1)

class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.4))
        self.head = nn.Linear(16, 2)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen.add_(1)
        print("forward", int(self.seen))
        x = F.dropout(x, 0.1, self.training) * (1 + self.seen * 1e-3)
        return self.head(self.body(x)) + {{extra}}

model = Noisy()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
for step in range(12):
    i = torch.randperm(64)[:16]
    logits = F.dropout(model(X[i]), 0.1)
    p = logits.softmax(-1)
    if step == 6:
        p = p * 0
    loss = -p.log().gather(1, Y[i][:, None]).mean()  # HERE
    losses.append(loss.item() if {{asks_by_item}} else 0.0)
    if not torch.isfinite(loss):
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
evidence.leave(losses, {{{{"model": model}}}}, [optimizer], draws=[random.random(), np.random.rand(), torch.rand(1)])
"""


def pair(foundry: Foundry, text: str, folder: Path, budget: float | None = 0.05) -> tuple[Ran, Ran]:
    bare = folder / "bare"
    bare.mkdir()
    (bare / "script.py").write_text(text)
    plain, watched = foundry.bare(bare / "script.py", bare), run(foundry, text, folder / "watched", budget=budget)
    assert plain.code == watched.code == 0, watched.err
    assert plain.out == watched.out
    assert {k: v for k, v in plain.result.items() if k != "losses"} == {
        k: v for k, v in watched.result.items() if k != "losses"
    }
    assert str(plain.result["losses"]) == str(watched.result["losses"])
    return plain, watched


@pytest.mark.parametrize("asks_by_item", [True, False])
@pytest.mark.parametrize("budget", [0.0, 0.05, None])
def test_a_batch_that_the_script_skips_is_replayed_and_leaves_no_mark(
    asks_by_item: bool, budget: float | None, foundry: Foundry, tmp_path: Path
) -> None:
    text = script("", model="", loop=SKIPPING.format(extra="0.0", asks_by_item=asks_by_item))
    _, watched = pair(foundry, text, tmp_path, budget)
    (trace,) = [trace for trace in watched.rank.traces if trace.reason == "replay"]
    assert trace.exact, trace.notes
    (first, *_) = findings(watched)
    assert (first.title.startswith("log of 0"), first.severity) == (True, "warning")
    assert first.source is not None
    assert first.source.line == line_of(text)


@pytest.mark.parametrize("extra", ["random.random()", "float(np.random.rand())"])
def test_other_random_generators_are_put_back(extra: str, foundry: Foundry, tmp_path: Path) -> None:
    text = script("", model="", loop=SKIPPING.format(extra=extra, asks_by_item=True))
    pair(foundry, text, tmp_path)


def test_a_model_that_draws_from_pythons_generator_is_replayed_exactly(foundry: Foundry, tmp_path: Path) -> None:
    body = """
    class Forcing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 2)

        def forward(self, x):
            return self.inner(x) * (1 + random.random())

    model = Forcing()

    def compute(x, y, bad):
        out = model(x)
        return F.cross_entropy(out / 0 if bad else out, y)  # HERE
    """
    ran = run(foundry, script(body, model=""), tmp_path)
    assert [trace.exact for trace in ran.rank.traces if trace.reason == "replay"] == [True]


def test_copies_of_tensors_are_values_from_outside_and_are_not_kept(foundry: Foundry, tmp_path: Path) -> None:
    """The memo of `copy.deepcopy` holds all that was copied before; a tape that keeps it grows with the square of the parameters."""
    body = """
    import copy, weakref

    def compute(x, y, bad):
        copied = copy.deepcopy([x, y])
        seen = weakref.ref(copied[1])
        x = copied[0]
        del copied
        assert seen() is None, "something keeps the copy"
        return F.cross_entropy(model(x) / (0 if bad else 1), y)  # HERE
    """
    text = script(body)
    ran = run(foundry, text, tmp_path)
    assert [trace.exact for trace in ran.rank.traces if trace.reason == "replay"] == [True]
    first = problems(ran)[0]
    assert first.source is not None
    assert first.source.line == line_of(text)


def test_a_step_that_cannot_be_replayed_is_said_so_and_the_next_is_traced(foundry: Foundry, tmp_path: Path) -> None:
    body = """
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.calls = nn.Linear(8, 2), 0

        def forward(self, x):
            self.calls += 1
            out = self.inner(x)
            if self.calls == 8:
                out = out / 0  # HERE
            return out

    model = Counting()

    def compute(x, y, bad):
        return F.cross_entropy(model(x), y)
    """
    ran = run(foundry, script(body, model=""), tmp_path)
    replayed = [trace for trace in ran.rank.traces if trace.reason == "replay"]
    assert [trace.exact for trace in replayed] == [False]
    assert any("not the one" in note for note in replayed[0].notes)
    assert [trace.reason for trace in ran.rank.traces].count("following") == 1


ACCUMULATING = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(8):
    optimizer.zero_grad()
    for part in range(3):
        i = torch.randperm(64)[:16]
        out = model(X[i])
        if step == 5 and part == 1:
            out = (out * 0).sqrt()  # HERE
        loss = F.cross_entropy(out, Y[i]) / 3
        loss.backward()
    optimizer.step()
"""


def test_micro_batches_are_replayed_together(foundry: Foundry, tmp_path: Path) -> None:
    text = script("", loop=ACCUMULATING)
    first = findings(run(foundry, text, tmp_path))[0]
    assert first.step == 5
    assert first.source is not None
    assert first.source.line == line_of(text)


GAN = """
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
D = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
of_g, of_d = torch.optim.Adam(G.parameters(), lr=1e-3), torch.optim.Adam(D.parameters(), lr=1e-3)
for step in range(10):
    fake = G(torch.randn(16, 4))
    of_d.zero_grad()
    d_loss = D(fake.detach()).mean() - D(X[:16]).mean()
    d_loss.backward()
    of_d.step()
    of_g.zero_grad()
    score = D(fake)
    g_loss = -torch.log(score.sigmoid() * (step != 6)).mean()  # HERE
    g_loss.backward()
    of_g.step()
"""


def test_the_second_of_two_optimizers(foundry: Foundry, tmp_path: Path) -> None:
    text = script("", model="", loop=GAN)
    first = findings(run(foundry, text, tmp_path))[0]
    assert (first.step, first.op) == (6, "log")
    assert first.source is not None
    assert first.source.line == line_of(text)


SCALED = """
optimizer = torch.optim.SGD(model.parameters(), lr=5e-5)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 125)
for step in range(40):
    i = torch.randperm(64)[:16]
    loss = F.cross_entropy(model(X[i]), Y[i]) {bad}
    optimizer.zero_grad()
    scaler.scale(loss * 1e3).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def test_overflow_of_the_loss_scale_is_no_problem(foundry: Foundry, tmp_path: Path) -> None:
    assert problems(run(foundry, script("", loop=SCALED.format(bad="")), tmp_path)) == []


COMPILED = """
{compiled}
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(8):
    i = torch.arange(16)
    loss = {call}
    if step == 5:
        loss = (loss * 0).log()  # HERE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
import torch._dynamo.utils
print("frames", dict(torch._dynamo.utils.counters["frames"]), dict(torch._dynamo.utils.counters["graph_break"]))
evidence.leave([float(loss)], {{"model": model}}, [optimizer])
"""


@pytest.mark.parametrize(
    ("compiled", "call"),
    [
        ("net = torch.compile(model, backend='eager')", "F.cross_entropy(net(X[i]), Y[i])"),
        (
            "@torch.compile(backend='eager')\ndef both(x, y):\n    return F.cross_entropy(model(x), y)\n",
            "both(X[i], Y[i])",
        ),
        ("both = torch.compile(lambda x, y: F.cross_entropy(model(x), y), backend='eager')", "both(X[i], Y[i])"),
    ],
    ids=["module", "decorated", "function"],
)
def test_compiled_code_is_compiled_as_without_tensonde(
    compiled: str, call: str, foundry: Foundry, tmp_path: Path
) -> None:
    head = f"import sys\nsys.path.append({str(EVIDENCE)!r})\nimport evidence\nevidence.seed(0)\n"
    pair(foundry, script(head, loop=COMPILED.format(compiled=compiled, call=call)), tmp_path)


MODES = """
torch.set_default_device("cpu")
from torch.overrides import TorchFunctionMode
class Counting(TorchFunctionMode):
    count = 0
    def __torch_function__(self, func, types, args=(), kwargs=None):
        Counting.count += 1
        return func(*args, **(kwargs or {}))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(8):
    i = torch.arange(16)
    with torch.device("cpu"), Counting():
        out = model(X[i])
        loss = F.cross_entropy(out, Y[i])
        if step == 5:
            loss = (loss * 0).log()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(Counting.count > 0, torch._C._len_torch_function_stack())
torch.set_default_device(None)
evidence.leave([float(loss)], {"model": model}, [optimizer])
"""


def test_modes_of_the_script_are_left_alone(foundry: Foundry, tmp_path: Path) -> None:
    head = f"import sys\nsys.path.append({str(EVIDENCE)!r})\nimport evidence\nevidence.seed(0)\n"
    pair(foundry, script(head, loop=MODES), tmp_path)
