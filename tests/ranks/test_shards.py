"""Models that are spread over ranks (FSDP2, tensor parallel): the site is the whole tensor, every collective is listed, and nothing is run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ranks_program import program

from launch import Foundry, Ran
from tensonde.diagnose.diagnose import diagnose
from tensonde.digest.layout import COUNTS, STATS
from tensonde.store.query import query

MODEL = """
model = nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))
"""
TRAIN = """
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = data(3)
if LIMIT:
    x[20, 0] = float("inf")  # step 2: NaN, which would be traced by running the step again
for step in range(4):
    loss = loss_of(model(x[step * 8 : step * 8 + 8]), y[step * 8 : step * 8 + 8])
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
SHARDED = """
WIDTH = 7  # shards of 4 and 3
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
#MODEL
fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
"""
PARALLEL = """
WIDTH = 8
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
#MODEL
parallelize_module(model, init_device_mesh("cpu", (world,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
"""
KEPT = """
with open(f"weights{rank}", "w") as file:
    held = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
    file.write(" ".join(value.hex() for p in held for value in p.detach().double().flatten().tolist()))
kept.append(model)
model = nn.Linear(1, 1)
"""
PLAIN = """
import torch, torch.nn as nn
torch.set_num_threads(1)
torch.manual_seed(0)
loss_of = nn.functional.cross_entropy
def data(seed, n=96):
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] > 0).long()
"""


def trained(foundry: Foundry, folder: Path, how: str, *, nan: bool = False, watched: bool = True) -> Ran:
    folder.mkdir()
    body = how.replace("#MODEL", MODEL) + TRAIN.replace("LIMIT", str(nan)) + KEPT
    ran = foundry.watched(program(body), folder, experiments=4.0) if watched else foundry.bare(program(body), folder)
    assert ran.code == 0, ran.err
    return ran


def plain(foundry: Foundry, folder: Path, width: int) -> Ran:
    folder.mkdir()
    ran = foundry.watched(PLAIN + MODEL.replace("WIDTH", str(width)) + TRAIN.replace("LIMIT", "False"), folder)
    assert ran.code == 0, ran.err
    return ran


def by_site(ran: Ran, view: str) -> dict[tuple[str, int], dict[str, Any]]:
    sql = f"SELECT * FROM {view} WHERE site LIKE '%weight:%' OR site LIKE '%bias:%'"
    return {(row["site"], row["step"]): row for row in query(ran.recording, sql).to_pylist()}


@pytest.mark.parametrize("how", [SHARDED, PARALLEL], ids=["fsdp2", "tensor parallel"])
def test_shards_merge_to_the_digest_of_the_plain_model(how: str, foundry: Foundry, tmp_path: Path) -> None:
    ran = trained(foundry, tmp_path / "watched", how)
    bare = trained(foundry, tmp_path / "bare", how, watched=False)
    for rank in (0, 1):
        assert (ran.cwd / f"weights{rank}").read_text() == (bare.cwd / f"weights{rank}").read_text()
    expected, found = (
        by_site(plain(foundry, tmp_path / "plain", 7 if how is SHARDED else 8), "digests"),
        by_site(ran, "whole"),
    )
    sharded = {"0.weight", "0.bias", "2.weight"} | ({"2.bias"} if how is SHARDED else set())
    assert {site.partition(":")[0] for site, _ in found} == sharded  # the names of the plain model
    assert {key for key in expected if key[0].partition(":")[0] in sharded} == set(found)
    for key, row in found.items():
        for name in (*COUNTS, *STATS):
            assert row[name] == pytest.approx(expected[key][name], rel=1e-5, abs=1e-7), (key, name)
    collectives = query(
        ran.recording, "SELECT rank, op, ranks, tensor, line, seconds, code FROM collectives"
    ).to_pylist()
    assert {row["rank"] for row in collectives} == {0, 1}
    assert all(row["ranks"] == 2 and row["tensor"].startswith("float32[") and row["seconds"] > 0 for row in collectives)
    ops = {row["op"]: row["code"] for row in collectives}
    if how is SHARDED:
        assert {"all_gather_single", "reduce_scatter_single"} <= ops.keys() or {
            "all_gather_into_tensor",
            "reduce_scatter_tensor",
        } <= ops.keys()
        assert any(row["code"] == "loss.backward()" for row in collectives)
    else:
        assert "model(" in ops["all_reduce"]


@pytest.mark.parametrize("how", [SHARDED, PARALLEL], ids=["fsdp2", "tensor parallel"])
def test_a_step_that_communicates_is_not_run_again(how: str, foundry: Foundry, tmp_path: Path) -> None:
    """Other ranks would have to take part. The training ends as it does without Tensonde, which hangs where a rank calls too many collectives."""
    ran = trained(foundry, tmp_path / "watched", how, nan=True)
    bare = trained(foundry, tmp_path / "bare", how, nan=True, watched=False)
    for rank in (0, 1):
        assert (ran.cwd / f"weights{rank}").read_text() == (bare.cwd / f"weights{rank}").read_text()
    said = [event for event in ran.recording.events if "communicates with other ranks" in str(event)]
    assert said, {event["kind"] for event in ran.recording.events}
    for rank in ran.recording.ranks:
        asked = rank.facts.get("answers") or []
        assert not [answer for answer in asked if answer.get("experiment")], asked
        assert rank.rank != 0 or not asked or "communicates" in str(asked)
    calls = query(ran.recording, "SELECT rank, step, count(*) AS calls FROM collectives GROUP BY ALL").to_pylist()
    assert len({row["calls"] for row in calls if row["step"] < 4}) == 1, calls  # none was made twice


TIED = """
from torch.distributed.fsdp import fully_shard
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6, bias=False), nn.Linear(6, 8, bias=False))
model[2].weight = nn.Parameter(torch.randn(6, 8))
model[3].weight = model[2].weight
for k in (2, 3):
    fully_shard(model[k])  # HERE
fully_shard(model)
signal.alarm(20)
model(x[:8])
"""


def test_a_tied_weight_that_two_calls_shard(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(program(TIED), tmp_path)
    assert ran.code != 0
    first = next(one for one in diagnose(ran.recording) if one.severity != "info")
    assert first.rule == "tied-weight-sharded-apart", first.title
    assert first.source is not None
    assert "# HERE" in first.source.code
