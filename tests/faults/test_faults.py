"""Whatever breaks in Tensonde or around it, the training goes on with the same result, and one line says what was lost."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from launch import Foundry, Ran
from tensonde.store.reader import Recording

TRAINING = """
import gc, hashlib, json, os, shutil, sys, warnings
warnings.simplefilter("ignore")
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

if os.environ.get("INJECT"):
    import importlib
    where, _, path = os.environ["INJECT"].partition(":")
    holder = importlib.import_module(where)
    *owners, name = path.split(".")
    for owner in owners:
        holder = getattr(holder, owner)
    def broken(*args, **kwargs):
        raise RuntimeError("injected")
    setattr(holder, name, broken)

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.head = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Dropout(0.2))
        self.late = None

    def forward(self, x):
        x = self.norm(self.stem(x))
        x = checkpoint(self.block, x, use_reentrant=True)
        if self.late is not None:
            x = self.late(x)
        return self.head(x)

model = Net()
critic = nn.Linear(1, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
second = torch.optim.SGD(critic.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4, shuffle=True)
losses = []

def disturb(step):
    pass

#DISTURB

for step, (x,) in enumerate(loader):
    disturb(step)
    if step == 5:
        x[0, 0] = float("inf")
    if step == 8:
        model.late = nn.Identity()
    optimizer.zero_grad()
    loss = model(x).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    for _ in range(2):
        second.zero_grad()
        critic(model(torch.randn(4, 4)).detach()).mean().backward()
        second.step()
    losses.append(loss.item().hex())
    with torch.no_grad():
        losses.append(model(torch.randn(2, 4)).sum().item().hex())
state = b"".join(value.numpy().tobytes() for value in [*model.state_dict().values(), torch.get_rng_state()])
print(losses, hashlib.sha256(state).hexdigest())
sys.exit(3)
"""


def warnings_in(ran: Ran) -> list[str]:
    return [line for line in ran.err.splitlines() if "Tensonde failed" in line or "could not" in line]


@pytest.fixture(scope="module")
def bare(foundry: Foundry, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    ran = foundry.bare(TRAINING, tmp_path_factory.mktemp("bare"))
    assert ran.code == 3, ran.err
    return ran


def assert_unharmed(ran: Ran, bare: Ran) -> None:
    assert ran.code == bare.code, ran.err
    assert ran.out == bare.out
    assert "Traceback" not in ran.err
    assert [line for line in ran.err.splitlines() if not line.startswith("tensonde:")] == []


PLACES = [
    "tensonde.watch.engine:Engine.evaluate",
    "tensonde.watch.engine:Engine.add_site",
    "tensonde.watch.engine:Engine.__init__",
    "tensonde.store.writer:RecordingWriter.__init__",
    "tensonde.store.writer:RecordingWriter.digests",
    "tensonde.store.writer:RecordingWriter.scalars",
    "tensonde.store.writer:RecordingWriter.site",
    "tensonde.store.writer:RecordingWriter.hit",
    "tensonde.store.writer:RecordingWriter.event",
    "tensonde.store.writer:RecordingWriter.value",
    "tensonde.store.writer:RecordingWriter.close",
    "tensonde.session.session:Session.observe",
    "tensonde.session.session:Session.evaluate",
    "tensonde.session.session:Session.site",
    "tensonde.session.session:Session.finish_step",
    "tensonde.session.session:Session.flush",
    "tensonde.session.policy:Policy.finish_step",
    "tensonde.session.steps:Steps.before_optimizer",
    "tensonde.session.steps:Steps.after_optimizer",
    "tensonde.session.steps:Steps.after_backward",
    "tensonde.session.steps:Steps.before_forward",
    "tensonde.session.steps:Steps.optimizer_exists",
    "tensonde.adapters.torch.run.opening:open_watcher",
    "tensonde.adapters.torch.run.watcher:Watcher.module_entered",
    "tensonde.adapters.torch.run.watcher:Watcher.root_entered",
    "tensonde.adapters.torch.run.roster:Roster.adopt",
    "tensonde.adapters.torch.run.watcher:Watcher.module_left",
    "tensonde.adapters.torch.digests.modules:Taps.make_taps",
    "tensonde.adapters.torch.digests.tensors:Digests.add",
    "tensonde.adapters.torch.run.watcher:Watcher.recomputed",
    "tensonde.adapters.torch.run.watcher:Watcher.backward_begins",
    "tensonde.adapters.torch.run.watcher:Watcher.backward_ends",
    "tensonde.adapters.torch.run.watcher:Watcher.finish_step",
    "tensonde.adapters.torch.run.watcher:Watcher.mark",
    "tensonde.adapters.torch.run.watcher:Watcher.capture",
    "tensonde.adapters.torch.run.attention:Attention.choose",
    "tensonde.adapters.torch.run.coverage:coverage",
    "tensonde.adapters.torch.run.watcher:Watcher.epoch_begins",
    "tensonde.adapters.torch.run.roster:name_root",
    "tensonde.adapters.torch.digests.parameters:ParameterDigests.before",
    "tensonde.adapters.torch.digests.parameters:ParameterDigests.after",
    "tensonde.adapters.torch.digests.parameters:ParameterDigests.digest_rest",
    "tensonde.adapters.torch.run.parameters:ParameterNames.adopt",
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.rpartition(":")[2])
def test_failures_of_tensonde_stay_tensondes(place: str, bare: Ran, foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(
        TRAINING, tmp_path, strict=False, env={"INJECT": place}, watch=[("**", "norm > 1e6"), ("**:in", "nan")]
    )
    assert_unharmed(ran, bare)
    told = warnings_in(ran)
    assert 1 <= len(told) <= 2, ran.err
    assert "injected" in told[0]
    assert len(set(told)) == len(told)
    wheres = {line.partition("Tensonde failed in ")[2].partition(" (")[0] for line in told} - {""}
    if ran.recording.ranks and ran.rank.closed:
        assert wheres <= set(ran.session["failures"])


def test_a_full_disk(bare: Ran, foundry: Foundry, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    try:
        wide = TRAINING.replace("#DISTURB", "model.block.extend([nn.Linear(8, 8) for _ in range(60)])")
        plain = foundry.bare(wide, tmp_path)
        ran = foundry.watched(wide, tmp_path, strict=False, record=small)
        assert_unharmed(ran, plain)
        told = warnings_in(ran)
        assert told
        assert all("No space left" in line for line in told), told
        assert len(told) == 1
        recording = Recording.open(ran.folder)
        assert recording.ranks
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.parametrize("at", [0, 6])
def test_the_recording_is_deleted_in_the_middle(at: int, bare: Ran, foundry: Foundry, tmp_path: Path) -> None:
    disturb = f"""
def disturb(step):
    if step == {at} + 1 and "TENSONDE_OPTIONS" in os.environ:
        shutil.rmtree(json.loads(os.environ["TENSONDE_OPTIONS"])["run"])
"""
    ran = foundry.watched(TRAINING.replace("#DISTURB", disturb), tmp_path, strict=False)
    assert_unharmed(ran, bare)
    assert len(warnings_in(ran)) == 1


def test_killed_in_the_middle(foundry: Foundry, tmp_path: Path) -> None:
    disturb = (
        "def disturb(step):\n    import time; time.sleep(0.1)\n    if step == 12:\n        os.kill(os.getpid(), 9)\n"
    )
    ran = foundry.watched(TRAINING.replace("#DISTURB", disturb), tmp_path, strict=False)
    assert ran.code == 137
    assert ran.recording.state == "killed"
    assert ran.recording.problems == []
    assert {row["step"] for row in ran.rows} >= {0, 1, 2, 3}
    assert all(row["address"] for row in ran.rows)


HOSTILE = """
class Hostile(torch.Tensor):
    quiet = True
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if not cls.quiet and sys._getframe(1).f_code.co_filename.find("tensonde") >= 0:
            raise TypeError("hands off: " + name)
        return super().__torch_function__(func, types, args, kwargs or {})

class Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        return grad.as_subclass(Hostile)

class Wrap(nn.Module):
    def forward(self, x):
        return x.as_subclass(Hostile)

class Unwrap(nn.Module):
    def forward(self, x):
        return Turn.apply(x.as_subclass(torch.Tensor))

model.block = nn.Sequential(nn.Linear(8, 8), Wrap(), Unwrap(), nn.Linear(8, 8))
optimizer.add_param_group({"params": model.block.parameters()})
Hostile.quiet = False
"""

RAISING = """
class Broken:
    def __get__(self, instance, owner):
        raise RuntimeError("not now")

class Lazy:
    def __getattribute__(self, name):
        raise RuntimeError("outside of its context")

proxy = Lazy()

class Touchy(nn.Linear):
    later = Broken()
    def named_modules(self, *args, **kwargs):
        raise RuntimeError("no names")
    def named_parameters(self, *args, **kwargs):
        raise RuntimeError("no parameters")
    def __repr__(self):
        raise RuntimeError("no text")

model.late = Touchy(8, 8)
optimizer.add_param_group({"params": [model.late.weight]})
"""


@pytest.mark.parametrize("trouble", [HOSTILE, RAISING], ids=["tensor type", "module"])
def test_objects_that_break_hooks(trouble: str, foundry: Foundry, tmp_path: Path) -> None:
    script = TRAINING.replace("#DISTURB", trouble)
    plain = foundry.bare(script, tmp_path)
    assert plain.code == 3, plain.err
    ran = foundry.watched(script, tmp_path, strict=False)
    assert_unharmed(ran, plain)
    assert len(set(warnings_in(ran))) == len(warnings_in(ran)) <= 3
    assert ran.session["failures"] or ran.session["coverage"]["not_watched"]
    assert "head:out" in ran.addresses or "model.head:out" in ran.addresses


def test_a_proxy_among_the_variables_does_not_cost_the_names(foundry: Foundry, tmp_path: Path) -> None:
    """Naming the model looks at the variables around it; some of them may resent that."""
    script = TRAINING.replace("#DISTURB", RAISING.partition("class Touchy")[0])
    ran = foundry.watched(script, tmp_path, strict=False)
    assert ran.session["failures"] == {}
    assert "model.head:out" in ran.addresses


def test_options_that_tensonde_did_not_write(bare: Ran, foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(TRAINING, tmp_path, strict=False, env={"TENSONDE_OPTIONS": "{nonsense"})
    assert (ran.code, ran.out) == (bare.code, bare.out)
    assert ran.err.count("\n") == 1
    assert "could not start" in ran.err


def test_a_recording_folder_that_is_gone_before_the_start(bare: Ran, foundry: Foundry, tmp_path: Path) -> None:
    gone = tmp_path / "nowhere"
    options = f'{{"run": "{gone}", "watches": []}}'
    ran = foundry.watched(TRAINING, tmp_path, strict=False, env={"TENSONDE_OPTIONS": options})
    assert_unharmed(ran, bare)
    assert len(ran.err.splitlines()) == 1
    assert "runs unwatched" in ran.err
    assert os.listdir(tmp_path).count("nowhere") == 0


NOTE_FAILS = """
import torch
from torch import nn
import tensonde.adapters.torch.seams.notes as patches

def broken(*_):
    raise KeyError("an observer of ours")

patches.given = broken
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
torch.optim.lr_scheduler.StepLR(optimizer, 1)
print("done")
"""


def test_an_observer_that_fails_is_contained_and_counted(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(NOTE_FAILS, tmp_path, strict=False)
    assert (ran.code, ran.out) == (0, "done\n")
    assert "Tensonde failed in noting a call of __init__ (KeyError: 'an observer of ours')" in ran.err
    assert [event["where"] for event in ran.rank.events if event["kind"] == "tensonde_failure"] == [
        "noting a call of __init__"
    ]


def test_an_observer_that_fails_is_seen_by_our_own_tests(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(NOTE_FAILS, tmp_path, strict=True)
    assert ran.code == 1
    assert "KeyError: 'an observer of ours'" in ran.err
