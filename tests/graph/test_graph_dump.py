"""Dumps see inside of compiled code: the same sites as in eager mode, the same values but for rounding, and the training stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch import Foundry, Ran
from tensonde.store.sources import open_source

ARCHITECTURES = Path(__file__).parent / "architectures.py"
Key = tuple[int, str, int]


def config(*kernels: str, overflow: bool = False) -> dict[str, Any]:
    common: dict[str, Any] = {"dump_mode": 1 if kernels else 0, "iteration": [1, 2]}
    if kernels:
        common["kernels"] = list(kernels)
    return {"common_dump_settings": common, "async_dump_settings": {"enable": True, "op_debug_mode": int(overflow)}}


def dumped(ran: Ran) -> dict[Key, Any]:
    """Every tensor, by step, site and call. The root goes by its variable's name, which is another one when it was compiled."""
    assert ran.code == 0, ran.err
    assert not ran.session["failures"]
    source = open_source(ran.cwd / "dump")
    found = {}
    for entry in source.entries:
        site = entry.site.replace("call/", "model/").replace("call:", "model:").replace("module.seen", "seen")
        assert (entry.step, site, entry.call) not in found
        found[entry.step, site, entry.call] = source.read(entry)
    return found


def compared(
    foundry: Foundry, tmp_path: Path, script: str | Path, dump: dict[str, Any], argv: tuple[str, ...], backend: str
) -> tuple[dict[Key, Any], dict[Key, Any]]:
    """What is dumped of the training in eager mode and compiled, which is compared with the same without a dump."""
    env = {"TEST_SECONDS": "280"}
    ran = {}
    for name in ("bare", "none", backend):
        (tmp_path / name).mkdir()
        words = (*argv[:1], backend if name == "bare" else name, *argv[1:])
        if name == "bare":
            ran[name] = foundry.bare(script, tmp_path / name, argv=words, env=env)
        else:
            ran[name] = foundry.watched(script, tmp_path / name, argv=words, env=env, dump=dump, budget=0.05)
        assert ran[name].code == 0, ran[name].err
    assert ran[backend].result == ran["bare"].result
    return dumped(ran["none"]), dumped(ran[backend])


def of_modules(found: dict[Key, Any]) -> set[Key]:
    """Without ops: the compiler takes some of the program's apart, and leaves others out."""
    return {key for key in found if "/" not in key[1]}


def agree(eager: dict[Key, Any], compiled: dict[Key, Any], *, exact: bool) -> None:
    for key in eager.keys() & compiled.keys():
        if exact:
            np.testing.assert_array_equal(eager[key], compiled[key], err_msg=str(key))
        else:
            np.testing.assert_allclose(eager[key], compiled[key], rtol=1e-3, atol=1e-5, err_msg=str(key))


@pytest.mark.parametrize(
    ("architecture", "backend", "shapes"),
    [
        ("attentive", "aot_eager", "static"),
        ("recurrent", "aot_eager", "static"),
        ("broken", "aot_eager", "dynamic"),
        pytest.param("attentive", "inductor", "static", marks=pytest.mark.slow),
        pytest.param("broken", "inductor", "static", marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(600)
def test_all_modules(architecture: str, backend: str, shapes: str, foundry: Foundry, tmp_path: Path) -> None:
    eager, compiled = compared(foundry, tmp_path, ARCHITECTURES, config(), (architecture, shapes), backend)
    agree(eager, compiled, exact=False)
    unknown = {key for key in eager if key[1].startswith("cell:in[")}  # which of several inputs it is
    assert of_modules(compiled) == of_modules(eager) - unknown
    assert any("/" in site for _, site, _ in compiled.keys() & eager.keys())
    assert len([site for _, site, _ in compiled if site.endswith(":grad")]) > 4


def test_ops_go_by_the_names_of_eager_mode(foundry: Foundry, tmp_path: Path) -> None:
    dump = config("softmax", "*/chunk*:out[1]", "name-regex(.*/matmul#0)")
    eager, compiled = compared(foundry, tmp_path, ARCHITECTURES, dump, ("attentive", "static"), "aot_eager")
    agree(eager, compiled, exact=True)
    assert compiled.keys() == eager.keys()
    assert {
        (1, "model/softmax#1:out", 0),
        (1, "model/softmax#0:grad", 0),
        (1, "model/chunk#0:out[1]", 0),
    } <= eager.keys()


OWN = """
    import json, os, sys, torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)


    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2


    class Round(nn.Module):
        def forward(self, x):
            return Twice.apply(x)


    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.drop = nn.Linear(8, 8), nn.Dropout(0.5)

        def forward(self, x):
            h = self.drop(torch.relu(self.linear(x)))
            if sys.argv[1] == "break":
                torch._dynamo.graph_break()
            with torch.no_grad():
                shift = self.linear(h).mean()
            return self.linear(h) + shift


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.inner, self.round, self.head = nn.BatchNorm1d(8), Inner(), Round(), nn.Linear(8, 3)
            self.narrow = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

        def forward(self, x):
            x = self.inner(checkpoint(self.narrow, self.norm(x), use_reentrant=False))
            return F.log_softmax(self.head(self.round(x * 4)), -1)


    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


    def loss_of(x):
        return -model(x)[:, 0].mean()


    if sys.argv[2] != "none":
        loss_of = torch.compile(loss_of, backend=sys.argv[2])
    losses = []
    for step in range(4):
        optimizer.zero_grad()
        loss = loss_of(torch.randn(6, 8) * (float("inf") if step == int(sys.argv[3]) else 1))
        loss.backward()
        optimizer.step()
        losses.append(repr(loss.item()))
    weights = [repr(value.tolist()) for value in model.state_dict().values()]
    json.dump([losses, weights, torch.rand(()).item()], open(os.environ["RESULT"], "w"))
"""


@pytest.mark.parametrize("where", ["whole", "break"])
def test_what_only_autograd_and_the_program_know(where: str, foundry: Foundry, tmp_path: Path) -> None:
    """A backward of one's own, dropout, checkpointing, parts without gradients, batch norm, a compiled function, a graph break inside of
    a module."""
    eager, compiled = compared(foundry, tmp_path, OWN, config(), (where, "-1"), "aot_eager")
    agree(eager, compiled, exact=True)
    broken = {key for key in eager if where == "break" and key[1].partition(":")[0] in ("inner", "model")}
    assert of_modules(compiled) == of_modules(eager) - broken
    assert (2, "inner.linear:out", 2) in compiled
    assert (2, "inner.linear:grad", 1) not in compiled, "it ran without gradients"
    if where == "whole":
        assert np.array_equal(compiled[1, "round:grad", 0] * 8, compiled[1, "inner:grad", 0]), (
            "2 of its own, and times 4"
        )


def test_only_overflows(foundry: Foundry, tmp_path: Path) -> None:
    eager, compiled = compared(
        foundry, tmp_path, OWN, config("Linear", "relu", overflow=True), ("whole", "2"), "aot_eager"
    )
    assert compiled.keys() == eager.keys()
    assert {step for step, _, _ in compiled} == {2}
    assert (2, "inner/relu#0:in", 0) in compiled


def test_nothing_is_run_twice_for_what_is_not_wanted(foundry: Foundry, tmp_path: Path) -> None:
    """A graph without anything to dump in it is not run again, nor is any in other steps: nothing costs."""
    counting = (
        OWN.replace(
            "    model = Net()\n",
            "    from tensonde.adapters.torch.compiled import uncompiled\n    calls = []\n    before = uncompiled.Second.forward\n"
            "    uncompiled.Second.forward = lambda self, args: (calls.append(1), before(self, args))[1]\n    model = Net()\n",
        )
        .replace("json.dump([losses", "json.dump([len(calls)], open(os.environ['RESULT'], 'w'))\n    (([losses")
        .replace('torch.rand(()).item()], open(os.environ["RESULT"], "w"))', "0]))")
    )
    counts = []
    for name, kernels in (("some", ("head:out",)), ("none", ("**.weight:grad",))):
        (tmp_path / name).mkdir()
        ran = foundry.watched(counting, tmp_path / name, argv=("break", "aot_eager", "-1"), dump=config(*kernels))
        assert ran.code == 0, ran.err
        counts.append(ran.result[0])
    assert counts == [2, 0]  # one region of several, in two steps
