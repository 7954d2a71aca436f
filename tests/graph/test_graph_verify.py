"""Compiled results against those of the same graphs uncompiled, whenever somebody asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry, Ran, cli
from tensonde.diagnose.diagnose import diagnose

SCRIPT = """
    import json, os, torch
    from torch import nn
    from torch._dynamo.backends.common import aot_autograd

    torch._inductor.config.compile_threads = 1


    def unfaithful(gm, inputs):
        right = gm.forward
        changed = torch.fx.GraphModule(gm, gm.graph.__deepcopy__({}))
        for node in changed.graph.nodes:
            if node.target is torch.ops.aten.relu.default:
                node.target = torch.ops.aten.tanh.default
        changed.recompile()
        calls = []

        def run(args):
            calls.append(1)
            return (changed if len(calls) > GOOD else right)(*args)

        run._boxed_call = True
        return run


    if WRONG_LOWERING:
        from torch._inductor.lowering import lowerings
        lowerings[torch.ops.aten.relu.default] = lowerings[torch.ops.aten.abs.default]
    torch.manual_seed(0)


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.drop, self.second = nn.Linear(4, 8), nn.Dropout(DROP), nn.Linear(8, 4)
            self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, 1)

        def forward(self, x):
            h = self.first(x)
            h = torch.relu(h)
            return self.head(self.norm(self.second(self.drop(h))))


    model = Net()
    compiled = torch.compile(model, backend=BACKEND)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    for step in range(5):
        loss = compiled(torch.rand(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = [value.tolist() for value in model.state_dict().values()]
    json.dump([losses, weights, torch.rand(()).item()], open(os.environ["RESULT"], "w"))
"""
COMMANDS = "verify\nstep\nverify\nstep\nverify\ncontinue\n"
"""At the entry, where nothing has run yet, and twice between steps."""


def script(backend: str, *, good: int = 0, drop: float = 0.0, wrong_lowering: bool = False) -> str:
    return (
        SCRIPT.replace("BACKEND", backend)
        .replace("GOOD", str(good))
        .replace("DROP", str(drop))
        .replace("WRONG_LOWERING", str(wrong_lowering))
    )


UNFAITHFUL = "aot_autograd(fw_compiler=unfaithful)"


def environment(folder: Path) -> dict[str, str]:
    """With a cache of its own: what a wrong compiler made is nothing for others."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TEST_SECONDS": "280"}


def both(foundry: Foundry, tmp_path: Path, text: str, commands: str = COMMANDS) -> tuple[Ran, list[str]]:
    """The training under the debugger, the same as without, and what the debugger said of graphs."""
    ran = []
    for name in ("bare", "debugged"):
        (tmp_path / name).mkdir()
        env = {"TEST_SECONDS": "280"}
        if name == "bare":
            ran.append(foundry.bare(text, tmp_path / name, env=env))
        else:
            ran.append(foundry.watched(text, tmp_path / name, env=env, debug=True, stdin=commands))
        assert ran[-1].code == 0, ran[-1].err
    assert ran[0].result == ran[1].result
    assert not ran[1].session["failures"]
    return ran[1], [
        line.strip() for line in (ran[1].out + ran[1].err).splitlines() if line.strip().startswith("graph ")
    ]


def test_nothing_departs(foundry: Foundry, tmp_path: Path) -> None:
    """Random numbers of aot_eager are the framework's own, so they are compared, too."""
    ran, lines = both(foundry, tmp_path, script("'aot_eager'", drop=0.5))
    assert [line.split()[2] for line in lines] == ["forward", "backward"] * 3
    assert all(line.endswith("equal bit for bit") for line in lines)
    assert not [event for event in ran.rank.events if event["kind"] == "compiled_departs"]


@pytest.mark.parametrize("good", [0, 1])
def test_a_compiler_that_is_wrong_is_named_with_its_node(good: int, foundry: Foundry, tmp_path: Path) -> None:
    """Where it is right at first, neither the check of the first call nor compiling parts can tell: the first output does."""
    ran, lines = both(foundry, tmp_path, script(UNFAITHFUL, good=good), "step 2\nverify\ncontinue\n")
    (forward, backward) = lines
    assert "unfaithful" in forward
    assert f"{'departs, seen' if good else 'departs'} first at /relu#0:out by " in forward
    assert backward.endswith("equal bit for bit")
    shown = ran.out + ran.err
    assert "h = torch.relu(h)" in shown
    (found,) = (finding for finding in diagnose(ran.recording) if finding.rule == "compiled-result-differs")
    assert found.site == "/relu#0:out"


def test_chosen_steps_are_compared(foundry: Foundry, tmp_path: Path) -> None:
    text = script(UNFAITHFUL, good=2)
    for name, steps, departing in (("before", ((0, 1),), []), ("later", ((3, 3),), [3])):
        (tmp_path / name).mkdir()
        ran = foundry.watched(text, tmp_path / name, budget=0.05, verify_steps=steps)
        assert ran.code == 0, ran.err
        assert [event["step"] for event in ran.rank.events if event["kind"] == "compiled_departs"] == departing
        compared = {event["step"]: event for event in ran.rank.events if event["kind"] == "graphs_compared"}
        assert set(compared) == {"before": {0, 1}, "later": {0, 3}}[name]
        assert compared[0]["calls"] == 2
    shown = cli("show", str(ran.folder), "--graphs", cwd=tmp_path)
    assert "4 calls in 2 steps, 1 departed" in " ".join(shown.out.split())


def test_steps_that_are_none_are_told(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    ran = cli("run", "--verify-steps", "soon", "train.py", cwd=tmp_path)
    assert ran.code == 2
    assert "--verify-steps is 'soon'" in ran.err


def test_without_compiled_code_it_says_so(foundry: Foundry, tmp_path: Path) -> None:
    text = script("'eager'").replace("torch.compile(model, backend='eager')", "model")
    ran, lines = both(foundry, tmp_path, text, "verify\ncontinue\n")
    assert not lines
    assert (ran.out + ran.err).count("no compiled graph was called") == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_inductor(foundry: Foundry, tmp_path: Path) -> None:
    """A lowering of inductor's that is wrong for one op: that node is named. Without it, all is rounding; so is the gradient of the
    bias before the batch norm, which is nothing else."""
    (tmp_path / "right").mkdir()
    ran, lines = both(foundry, tmp_path / "right", script("'inductor'"), "verify\ncontinue\n")
    assert len(lines) == 2
    assert all("equal within rounding" in line or "equal bit for bit" in line for line in lines), lines
    assert not [event for event in ran.rank.events if event["kind"] == "compiled_departs"]
    (tmp_path / "wrong").mkdir()
    text = script("'inductor'", wrong_lowering=True)
    wrong = foundry.watched(
        text, tmp_path / "wrong", env=environment(tmp_path), debug=True, budget=0, stdin="verify\ncontinue\n"
    )
    assert wrong.code == 0, wrong.err
    assert "departs first at /relu#0:out" in wrong.out + wrong.err
    assert "h = torch.relu(h)" in wrong.out + wrong.err


STATEFUL = """
    import json, os, torch
    from functorch.compile import default_partition
    from torch import nn
    from torch._dynamo.backends.common import aot_autograd


    def forgetful(gm, inputs):
        outer = [node for node in gm.graph.nodes if node.target is torch.ops.aten.copy_.default]

        def run(args):
            held = [args[k] for k, node in enumerate(places) if any(copy.args[0] is node for copy in outer)]
            made = gm(*args)
            if FORGETS:
                for tensor in held:
                    tensor.zero_()
            return made

        places = [node for node in gm.graph.nodes if node.op == "placeholder"]
        run._boxed_call = True
        return run


    def partition(joint, inputs, **kwargs):
        for node in joint.graph.nodes:
            if REWRITES and node.target is torch.ops.aten.abs.default:
                node.target = torch.ops.aten.neg.default
        joint.recompile()
        return default_partition(joint, inputs, **kwargs)


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 1)
            self.register_buffer("seen", torch.ones(8, 4))

        def forward(self, x):
            self.seen.add_(x)
            h = x.abs()
            return self.layer(h)


    torch.manual_seed(0)
    model = Net()
    backend = aot_autograd(fw_compiler=forgetful, partition_fn=partition, keep_inference_input_mutations=True)
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(3):
        loss = compiled(torch.rand(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def stateful(*, forgets: bool = False, rewrites: bool = False) -> str:
    return STATEFUL.replace("FORGETS", str(forgets)).replace("REWRITES", str(rewrites))


def named(foundry: Foundry, tmp_path: Path, text: str) -> list[tuple[str, str]]:
    ran = foundry.watched(text, tmp_path, env=environment(tmp_path))
    assert ran.code == 0, ran.err
    assert not ran.session["failures"]
    found = [finding for finding in diagnose(ran.recording) if finding.rule == "compiled-result-differs"]
    return [(finding.source.code if finding.source else "", finding.evidence["found_by"]) for finding in found]


def test_what_is_written_to_a_buffer_is_compared(foundry: Foundry, tmp_path: Path) -> None:
    """Returned values are right; only the buffer is not what the program says."""
    ((code, _),) = named(foundry, tmp_path, stateful(forgets=True))
    assert code == "self.seen.add_(x)"


def test_a_graph_that_was_rewritten_before_it_was_taken_apart_is_noticed(foundry: Foundry, tmp_path: Path) -> None:
    """The graph that is compiled is wrong already, so it agrees with itself."""
    ((code, by),) = named(foundry, tmp_path, stateful(rewrites=True))
    assert code == "h = x.abs()"
    assert by == "the graph before forgetful's own passes"


def test_a_backend_with_passes_that_is_right_is_left_alone(foundry: Foundry, tmp_path: Path) -> None:
    assert named(foundry, tmp_path, stateful()) == []
