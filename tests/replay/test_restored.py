"""A step that is run again leaves everything as it was, and where that fails Tensonde says so and does not try again."""

from __future__ import annotations

from pathlib import Path

import pytest
from replay_trainings import run, script

from launch import Foundry

EMA = """
import hashlib
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(10):
    i = torch.randperm(64)[:16]
    loss = F.cross_entropy(model(X[i]), Y[i])
    if step == 6:
        loss = (loss * 0).log()
    if not torch.isfinite(loss):
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update_parameters(model)
print(int(ema.n_averaged), [p.sum().item().hex() for p in ema.module.state_dict().values()])
"""


@pytest.mark.parametrize("saved", [(), (3,)])
def test_an_average_of_the_weights_moves_once_a_step(saved: tuple[int, ...], foundry: Foundry, tmp_path: Path) -> None:
    text = script("", loop=EMA)
    for name in ("bare", "watched"):
        (tmp_path / name).mkdir()
    bare = foundry.bare(text, tmp_path / "bare")
    watched = foundry.watched(text, tmp_path / "watched", budget=0.05, save_steps=saved)
    assert watched.out == bare.out
    assert bare.out.startswith("9 ")
    replayed = [event for event in watched.recording.events if event["kind"] == "replayed"]
    assert [event["exact"] for event in replayed] == [True] * (1 + len(saved))


HIDDEN = """
class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 2)
        self.large = torch.zeros(1 << 19)
        self.memory = self.large.numpy()

    def forward(self, x):
        self.memory[7] += 1  # no op, and too large to be copied on suspicion
        return self.inner(x)

model = Hidden()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    loss = F.cross_entropy(model(X), Y)
    if step in (4, 9):
        loss = (loss * 0).log()
    if not torch.isfinite(loss):
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_what_could_not_be_put_back_is_said_and_no_step_is_run_again(foundry: Foundry, tmp_path: Path) -> None:
    ran = run(foundry, script("", model="", loop=HIDDEN), tmp_path, budget=0.05)
    kinds = [event["kind"] for event in ran.recording.events]
    assert (kinds.count("replayed"), kinds.count("replay_unrestored"), kinds.count("replay_impossible")) == (1, 1, 0)
    (told,) = [line for line in ran.err.splitlines() if "could not be put back" in line]
    assert "a tensor of shape [524288]" in told
    assert [trace.reason for trace in ran.rank.traces].count("replay") == 1


def test_replays_can_be_switched_off(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(script("", loop=EMA), tmp_path, budget=0.05, env={"TENSONDE_REPLAY": "0"})
    kinds = [event["kind"] for event in ran.recording.events]
    assert "replayed" not in kinds
    assert ran.code == 0


COUNTLESS = """
class Kinds(tuple):
    def __len__(self):
        raise NotImplementedError

    def __iter__(self):
        raise NotImplementedError

class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.kinds = nn.Linear(8, 2), Kinds((1, torch.zeros(3)))

    def forward(self, x):
        return self.inner(x)

model = Counted()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(8):
    loss = F.cross_entropy(model(X), Y)
    if step == 6:
        loss = (loss * 0).log()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_tuple_of_the_programs_own_kind_is_looked_into_without_its_code(foundry: Foundry, tmp_path: Path) -> None:
    watched = foundry.watched(script("", loop=COUNTLESS), tmp_path, budget=0.05)
    assert [event["exact"] for event in watched.recording.events if event["kind"] == "replayed"][:1] == [True]
