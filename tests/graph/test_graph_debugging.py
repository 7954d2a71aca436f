"""Looking into compiled code: NaN, wrong compilers, stops inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry, Ran
from tensonde.diagnose.diagnose import diagnose

HEAD = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


    @torch.compile(backend=BACKEND)
    def loss_of(x):
        scale = torch.relu(x.sum(1, keepdim=True))
        weight = FUNCTION
        return (model(x) * weight).square().mean()


    for step in range(6):
        x = torch.rand(8, 4)
        if step == 3:
            x[2] = -1.0
        optimizer.zero_grad()
        loss_of(x).backward()
        optimizer.step()
    counters = torch._dynamo.utils.counters
    print(counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))
"""
PLAIN = HEAD.replace("BACKEND", "'aot_eager'").replace("FUNCTION", "scale")


def line(ran: Ran, text: str) -> int:
    return next(k for k, code in enumerate((ran.cwd / "script.py").read_text().splitlines(), 1) if text in code)


def test_nan_is_traced_to_its_line_inside_a_compiled_function(foundry: Foundry, tmp_path: Path) -> None:
    script = HEAD.replace("BACKEND", "'aot_eager'").replace("FUNCTION", "torch.log(scale)")
    ran = foundry.watched(script, tmp_path, budget=0.05)
    assert ran.code == 0, ran.err
    first = diagnose(ran.recording)[0]
    assert (first.rule, first.step, first.op) == ("nan-origin", 3, "log")
    assert first.source is not None
    assert first.source.line == line(ran, "torch.log(scale)")
    assert first.evidence["samples"] == [2]


def test_a_bad_gradient_is_traced_to_its_op(foundry: Foundry, tmp_path: Path) -> None:
    script = HEAD.replace("BACKEND", "'aot_eager'").replace(
        "FUNCTION", "torch.sqrt(scale * model[0].weight.sum() ** 2)"
    )
    ran = foundry.watched(script, tmp_path, budget=0.05)
    assert ran.code == 0, ran.err
    first = diagnose(ran.recording)[0]
    assert (first.rule, first.step, first.phase) == ("nan-origin", 3, "backward")
    assert first.source is not None
    assert first.source.line == line(ran, "torch.sqrt")


WRONG = """
    import torch
    from torch import nn
    from torch._dynamo.backends.common import aot_autograd
    from torch.fx import GraphModule


    def wrong(gm: GraphModule, inputs):
        for node in gm.graph.nodes:
            if node.target is torch.ops.aten.relu.default:
                node.target = torch.ops.aten.tanh.default
        gm.recompile()
        return lambda args: gm(*args)


    def compiler(gm, inputs):
        run = wrong(gm, inputs)
        run._boxed_call = True
        return run


    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    compiled = torch.compile(model, backend=aot_autograd(fw_compiler=compiler))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(3):
        loss = compiled(torch.rand(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_compiler_that_is_wrong_is_found_out(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(WRONG, tmp_path, budget=0.05)
    assert ran.code == 0, ran.err
    (found,) = (finding for finding in diagnose(ran.recording) if finding.rule == "compiled-result-differs")
    assert found.site == "1/relu#0:out"
    right = foundry.watched(WRONG.replace("aten.tanh", "aten.relu"), tmp_path, budget=0.05)
    assert not [finding for finding in diagnose(right.recording) if finding.severity != "info"]


def test_the_debugger_stops_at_nodes_forward_and_backward(foundry: Foundry, tmp_path: Path) -> None:
    commands = [
        "until **/relu#0:out", "where", "next op", "print 1/relu#0:out", "break **/linear-mm#0:grad_in", "continue",
        "where", "delete 1", "continue",
    ]  # fmt: skip
    ran = foundry.watched(PLAIN, tmp_path, debug=True, stdin="\n".join(commands) + "\n")
    assert ran.code == 0, ran.err
    seen = ran.out + ran.err
    assert "step 0 · forward · 1/relu#0:out" in seen or "step 0 · forward · /relu#0:out" in seen
    assert "linear-mm#0:grad_in" in seen
    assert "made in the forward pass by script.py" in seen
    assert "1 0" in ran.out.splitlines()[-1]  # one graph, no break: then at compiled speed again


@pytest.mark.parametrize("when", ["before", "later"])
def test_other_nodes_are_compiled_in_once(when: str, foundry: Foundry, tmp_path: Path) -> None:
    watch = "    import tensonde\n    tensonde.watch('**/relu#0:out', 'max > 1e9')\n"
    script = PLAIN.replace("\n    import torch\n", "\n    import torch\n" + (watch if when == "before" else ""), 1)
    if when == "later":
        script = script.replace(
            "        optimizer.zero_grad()\n",
            "        optimizer.zero_grad()\n        if step == 2:\n" + watch.replace("    ", "            ", 2),
            1,
        )
    ran = foundry.watched(script, tmp_path, budget=0.05)
    assert ran.code == 0, ran.err
    watched = [len(graph.watched) for graph in ran.rank.graphs if graph.phase == "forward"]
    assert watched == ([2] if when == "before" else [0, 2])
    assert ran.err.count("compiled again, once") == (when == "later")
