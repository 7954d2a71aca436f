"""Dumps of real trainings: what is in them is what the training computed, and the training is the same bit by bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch import Foundry, Ran
from tensonde.store.sources import TensorSource, open_source

TRAINING = """
import json, os, torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen += 1
        x = self.first(x)
        kept.append(x.detach().clone())
        x.mul_(2)                      # what was given is changed in place afterwards
        return self.second(F.softmax(x, dim=-1))

net, kept, losses = Net(), [], []
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    x = torch.randn(5, 4)
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
weights = [p.detach().flatten().tolist() for p in net.parameters()]
json.dump({"losses": losses, "weights": weights, "first": [k.tolist() for k in kept]}, open(os.environ["RESULT"], "w"))
"""


def config(way: str = "async", **common: Any) -> dict[str, Any]:
    return {"common_dump_settings": common, f"{way}_dump_settings": {"enable": True}}


def dumped(ran: Ran) -> TensorSource:
    assert ran.code == 0, ran.err
    return open_source(ran.cwd / "dump")


@pytest.mark.parametrize("way", ["async", "e2e"])
def test_everything_is_dumped_and_the_training_is_the_same(foundry: Foundry, tmp_path: Path, way: str) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "dumped").mkdir()
    bare = foundry.bare(TRAINING, tmp_path / "bare")
    ran = foundry.watched(TRAINING, tmp_path / "dumped", dump=config(way, dump_mode=0, iteration="all"))
    source = dumped(ran)
    assert bare.result == ran.result
    assert source.problems == []
    at = {(entry.step, entry.site): source.read(entry) for entry in source.entries}
    assert {site for step, site in at if step == 2 and "/" not in site} == {
        "net:in", "first:in", "first:out", "second:in", "second:out", "net:out", "loss:value", "net:grad", "second:grad",
        "first:grad", "first.weight:value", "first.weight:grad", "first.bias:value", "first.bias:grad", "second.weight:value",
        "second.weight:grad", "second.bias:value", "second.bias:grad", "seen:value",
    }  # fmt: skip
    ops = {site.partition(":")[0] for step, site in at if step == 2 and "/" in site}
    assert ops >= {"net/softmax#0", "net/mul_#0", "/square#0", "/mean#0"}, "those that the program calls"
    assert not ops & {"first/linear#0", "second/linear#0", "/randn#0"}, "a layer's own show in its outputs"
    for step in range(4):
        assert at[step, "first:out"].tolist() == ran.result["first"][step], "a snapshot, not what became of it"
        assert at[step, "loss:value"].item() == ran.result["losses"][step]
    # The value of a parameter is the one that the step used: with its gradient it gives that of the next step.
    for step in range(3):
        moved = at[step, "first.weight:value"] - np.float32(0.1) * at[step, "first.weight:grad"]
        np.testing.assert_allclose(moved, at[step + 1, "first.weight:value"], rtol=1e-6)


def test_order_is_that_of_the_training(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(TRAINING, tmp_path, dump=config(dump_mode=0, iteration=1))
    source = dumped(ran)
    assert {entry.step for entry in source.entries} == {1}
    sites = [entry.site for entry in source.entries]
    for earlier, later in [
        ("first:in", "first:out"), ("first:out", "second:out"), ("second:out", "loss:value"), ("loss:value", "second:grad"),
        ("second:grad", "first:grad"), ("first:grad", "first.weight:grad"),
    ]:  # fmt: skip
        assert sites.index(earlier) < sites.index(later)
    phases = {entry.site: entry.phase for entry in source.entries}
    assert (phases["first:out"], phases["first:grad"], phases["first.weight:grad"]) == (
        "forward",
        "backward",
        "backward",
    )


@pytest.mark.parametrize(
    ("common", "expected"),
    [
        ({"kernels": ["first"], "input_output": 2}, {"first:out", "first:grad"}),
        ({"kernels": ["first"], "input_output": 1}, {"first:in"}),
        ({"kernels": ["Linear"], "input_output": 1}, {"first:in", "second:in"}),
        ({"kernels": ["s*:out"]}, {"second:out"}),
        ({"kernels": ["name-regex(.*bias)"], "input_output": 2}, {"first.bias:grad", "second.bias:grad"}),
        ({"kernels": ["**.weight:update"]}, {"first.weight:update", "second.weight:update"}),
        ({"kernels": ["second:grad_in"]}, {"second:grad_in"}),
    ],
)  # fmt: skip
def test_kernels_choose(foundry: Foundry, tmp_path: Path, common: dict[str, Any], expected: set[str]) -> None:
    ran = foundry.watched(TRAINING, tmp_path, dump=config(dump_mode=1, iteration=[0, 2], **common))
    source = dumped(ran)
    assert {entry.site for entry in source.entries} == expected
    assert {entry.step for entry in source.entries} == {0, 2}
    assert "matches no tensor" not in ran.err


def test_op_types_are_dumped_with_inputs_and_outputs(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(TRAINING, tmp_path, dump=config(dump_mode=1, iteration=[1, 3], kernels=["softmax"]))
    source = dumped(ran)
    sites = {entry.site.partition("/")[2]: entry for entry in source.entries if entry.step == 3}
    assert set(sites) == {"softmax#0:in", "softmax#0:out", "softmax#0:grad"}
    assert np.allclose(source.read(sites["softmax#0:out"]).sum(-1), 1)
    assert {entry.kind for entry in source.entries} == {"op"}


def test_everything_includes_ops_of_the_function_api(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(TRAINING, tmp_path, dump=config(dump_mode=0, iteration=1))
    sites = {entry.site for entry in dumped(ran).entries}
    assert {"/softmax#0:out", "/softmax#0:in", "/square#0:out", "/mean#0:out"} <= {
        f"/{site.rpartition('/')[2]}" for site in sites if "/" in site
    }


def test_an_entry_that_matches_nothing_is_told_with_what_is_near(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(TRAINING, tmp_path, dump=config(dump_mode=1, kernels=["frist:out", "first:out"], iteration=0))
    assert "'frist:out' matches no tensor" in ran.err
    assert "first:out" in ran.err.partition("matches no tensor")[2]
    assert ran.err.count("matches no tensor") == 1


def test_only_overflows(foundry: Foundry, tmp_path: Path) -> None:
    script = TRAINING.replace("x.mul_(2)", "x.mul_(float('inf') if len(kept) == 3 else 2)")
    dump = config(dump_mode=0, iteration="all")
    dump["async_dump_settings"]["op_debug_mode"] = 3
    source = dumped(foundry.watched(script, tmp_path, dump=dump))
    assert {entry.step for entry in source.entries} == {2, 3}, "steps 0 and 1 are healthy"
    second = next(entry for entry in source.entries if entry.site == "second:out" and entry.step == 2)
    assert not np.isfinite(source.read(second)).all()
    assert "second:in" in {entry.site for entry in source.entries}, "the inputs of the module that gave it"
    assert "first:out" not in {entry.site for entry in source.entries if entry.step == 2}


def test_the_op_that_overflows_is_dumped_with_its_inputs(foundry: Foundry, tmp_path: Path) -> None:
    script = TRAINING.replace(
        "F.softmax(x, dim=-1)", "F.softmax(torch.log(x - x if len(kept) == 3 else x.abs() + 1), dim=-1)"
    )
    dump = config(dump_mode=1, kernels=["log", "softmax"], iteration="all")
    dump["async_dump_settings"]["op_debug_mode"] = 1
    source = dumped(foundry.watched(script, tmp_path, dump=dump))
    first = source.entries[0]
    assert (first.step, first.site.partition("/")[2]) == (2, "log#0:in")
    assert not source.read(first).any(), "the zeros whose logarithm was taken"


def test_bfloat16_float8_and_scalars_survive(foundry: Foundry, tmp_path: Path) -> None:
    script = """
    import json, os, torch
    from torch import nn

    class Cast(nn.Module):
        def __init__(self, dtype):
            super().__init__()
            self.dtype = dtype

        def forward(self, x):
            return x.to(self.dtype)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.b, self.f, self.c = Cast(torch.bfloat16), Cast(torch.float8_e4m3fn), Cast(torch.complex64)
            self.t = Turn()

        def forward(self, x):
            return self.b(x), self.f(x), self.c(x), self.t(x)

    class Turn(nn.Module):
        def forward(self, x):
            return x.t()

    torch.manual_seed(0)
    x = torch.randn(3, 5)
    net = Net()
    net(x)
    wide = [x.bfloat16().float().tolist(), x.to(torch.float8_e4m3fn).float().tolist(), x.tolist(), x.t().tolist()]
    json.dump(wide, open(os.environ["RESULT"], "w"))
    """
    ran = foundry.watched(script, tmp_path, dump=config(dump_mode=0, input_output=2))
    source = dumped(ran)
    at = {entry.site: entry for entry in source.entries}
    assert [at[f"net.{name}:out"].dtype for name in "bfct"] == ["bfloat16", "float8_e4m3fn", "complex64", "float32"]
    for name, expected in zip("bfct", ran.result, strict=True):
        assert source.read(at[f"net.{name}:out"]).tolist() == expected, name


def test_a_module_that_is_called_again_is_numbered(foundry: Foundry, tmp_path: Path) -> None:
    script = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    cell = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
    for _ in range(2):
        x = torch.ones(1, 3)
        for _ in range(3):
            x = cell(x)
        x.sum().backward()
        optimizer.step()
        with torch.no_grad():
            cell(torch.zeros(1, 3))   # evaluation in between is no part of the step
    """
    source = dumped(foundry.watched(script, tmp_path, dump=config(dump_mode=1, kernels=["cell"], input_output=2)))
    found = sorted((entry.step, entry.role, entry.call) for entry in source.entries if entry.kind == "module")
    assert found == [(step, role, call) for step in (0, 1) for role in ("grad", "out") for call in range(3)]
    last = next(e for e in source.entries if (e.step, e.site, e.call) == (0, "cell:grad", 2))
    assert source.read(last).tolist() == [[1, 1, 1]], "the gradient of the last call is that of the sum"


def test_the_step_files_are_safetensors_and_the_index_is_parquet(foundry: Foundry, tmp_path: Path) -> None:
    import duckdb
    from safetensors.numpy import load_file

    dumped(foundry.watched(TRAINING, tmp_path, dump=config(dump_mode=0, net_name="Net", iteration=[0, 3])))
    folder = tmp_path / "dump" / "Net" / "rank_0"
    tensors = load_file(folder / "steps" / "000003.safetensors")
    assert tensors["first:out"].shape == (5, 8)
    assert sorted(path.name for path in (folder / "steps").iterdir()) == ["000000.safetensors", "000003.safetensors"]
    assert not (folder / "journal.jsonl").exists()
    rows = duckdb.sql(
        f"select site, shape, complete from '{folder / 'index.parquet'}' where step = 3 order by ord"
    ).fetchall()
    assert {site for site, _, _ in rows} == set(tensors)
    assert all(complete for _, _, complete in rows)
    facts = json.loads((folder / "dump.json").read_text())
    assert facts["entries"] == 2 * len(rows)
    assert facts["failure"] is None


def test_several_optimizer_steps_of_one_round(foundry: Foundry, tmp_path: Path) -> None:
    """Two critic updates for one of the generator: the second belongs to the next step, which turns out only then."""
    script = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    critic, generator = nn.Linear(2, 1), nn.Linear(2, 2)
    first = torch.optim.SGD(critic.parameters(), lr=0.1)
    second = torch.optim.SGD(generator.parameters(), lr=0.1)
    for k in range(6):
        first.zero_grad()
        critic(torch.full((1, 2), float(k))).sum().backward()
        first.step()
    """
    source = dumped(foundry.watched(script, tmp_path, dump=config(dump_mode=1, kernels=["critic:in"])))
    assert [(entry.step, source.read(entry)[0, 0]) for entry in source.entries] == [(k, float(k)) for k in range(6)]


def test_a_compiled_module_is_dumped_from_outside(foundry: Foundry, tmp_path: Path) -> None:
    script = """
    import json, os, torch
    from torch import nn
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    net = nn.Sequential(torch.compile(inner, backend="eager"), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    seen = []
    for _ in range(3):
        out = net(torch.ones(2, 3))
        out.sum().backward()
        optimizer.step()
        seen.append(out.tolist())
    json.dump({"out": seen, "compiled": torch._dynamo.utils.counters["stats"]["unique_graphs"]}, open(os.environ["RESULT"], "w"))
    """
    (tmp_path / "bare").mkdir()
    (tmp_path / "dumped").mkdir()
    bare = foundry.bare(script, tmp_path / "bare")
    ran = foundry.watched(
        script, tmp_path / "dumped", dump=config(dump_mode=1, kernels=["*:out", "linear"], input_output=2)
    )
    source = dumped(ran)
    assert ran.result == bare.result
    outs = [source.read(entry).tolist() for entry in source.entries if entry.site == "net:out"]
    assert outs == ran.result["out"]
    assert {entry.site for entry in source.entries} >= {"1:out", "1/linear#0:out"}
