"""Real MindSpore trainings under Tensonde: what is seen of them, and that nothing changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("mindspore")

from mindspore_trainings import AWKWARD, HEAD, PROGRAMS, SINK

from launch import Foundry, Ran, cli
from tensonde.diagnose.diagnose import diagnose

INNER = {"fc1.weight", "fc1.bias", "norm.gamma", "norm.beta", "fc2.weight", "fc2.bias"}


@pytest.fixture(scope="module")
def bare(foundry: Foundry, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    found = {name: foundry.bare(text, tmp_path_factory.mktemp("bare")) for name, text in PROGRAMS.items()}
    assert {name: ran.code for name, ran in found.items()} == dict.fromkeys(PROGRAMS, 0)
    return found


@pytest.mark.parametrize("budget", [None, 0.05])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_changes(
    foundry: Foundry, bare: dict[str, Ran], tmp_path: Path, name: str, budget: float | None
) -> None:
    ran = foundry.watched(PROGRAMS[name], tmp_path, budget=budget)
    assert ran.code == 0, ran.err
    assert repr(ran.result) == repr(bare[name].result)  # NaN is NaN
    assert ran.out == bare[name].out
    assert ran.session["failures"] == {}
    assert ran.session["steps"] == len(ran.result["losses"])
    assert repr([value for _, value in ran.scalars("loss")]) == repr(ran.result["losses"])


@pytest.mark.parametrize("name", ["function", "cells", "model"])
def test_names_are_the_same_in_every_way_of_training(foundry: Foundry, tmp_path: Path, name: str) -> None:
    ran = foundry.watched(PROGRAMS[name], tmp_path)
    assert set(ran.rank.facts["parameters"]) == INNER
    assert {f"{cell}:out" for cell in ("fc1", "norm", "relu", "fc2")} <= ran.addresses
    assert {"fc1:grad", "norm.moving_mean:value", "fc2.weight:grad"} <= ran.addresses
    assert {"fc1", "norm", "relu", "drop", "fc2"} <= set(ran.rank.facts["modules"])


def test_epochs_are_counted(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(PROGRAMS["model"], tmp_path)
    assert [(event["epoch"], event["step"]) for event in ran.rank.events if event["kind"] == "epoch"] == [
        (1, 0), (2, 4), (3, 8)
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["jit", "graph"])
def test_what_is_compiled_is_said_and_its_parameters_are_watched(foundry: Foundry, tmp_path: Path, name: str) -> None:
    ran = foundry.watched(PROGRAMS[name], tmp_path, budget=0.05)
    assert "runs compiled" not in ran.err  # the summary says it
    assert any("runs compiled" in why for why in ran.session["coverage"]["not_watched"].values())
    assert {row["step"] for row in ran.at("fc1.weight:value")} == set(range(ran.session["steps"]))
    assert not ran.at("fc1:out")


@pytest.mark.parametrize("name", ["jit", "graph"])
def test_compiled_cells_are_watched_where_somebody_asks(foundry: Foundry, tmp_path: Path, name: str) -> None:
    """The same values and gradients as in PyNative mode, in the same steps."""
    ran = foundry.watched(
        PROGRAMS[name], tmp_path, budget=0.05, watch=[("fc1:out", "absmax > 1e9"), ("fc1:grad", "nan")]
    )
    (tmp_path / "plain").mkdir()
    plain = foundry.watched(PROGRAMS["cells"], tmp_path / "plain")
    for site in ("fc1:out", "fc1:grad"):
        rows = ran.at(site)
        assert [row["step"] for row in rows] == list(range(ran.session["steps"]))
        if name == "graph":
            assert rows[0]["norm"] == pytest.approx(plain.at(site)[0]["norm"], rel=1e-4)
    assert not ran.at("fc2:out")  # no tap is there


def test_steps_are_right_in_sink_mode(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(SINK, tmp_path, budget=0.05, watch=[("fc1:out", "absmax > 1e9")])
    assert ran.code == 0, ran.err
    assert ran.session["steps"] == 12
    assert [row["step"] for row in ran.at("fc1:out")] == list(range(12))


def test_what_no_tap_can_look_at_is_left_alone(foundry: Foundry, tmp_path: Path) -> None:
    bare = foundry.bare(AWKWARD, tmp_path)
    (tmp_path / "watched").mkdir()
    ran = foundry.watched(AWKWARD, tmp_path / "watched")
    assert (bare.code, ran.code) == (0, 0), ran.err
    assert repr(ran.result) == repr(bare.result)
    assert {"fc1:out", "fc1:grad", "later.parts:out"} <= ran.addresses
    assert not {"later.low:out", "later.named:out"} & ran.addresses


def test_a_stop_inside_of_a_compiled_step(foundry: Foundry, tmp_path: Path) -> None:
    commands = (
        "break fc1\ncontinue\nprint fc1:out[0, 0]\nprint fc2.weight:value[0, 0]\nset fc2.weight:value[0] = 1\n"
        "delete\nuntil fc2:grad\nset fc2:grad[:] = 0\nstep\nprint fc2.weight:grad[0, 0]\nquit\n"
    )
    ran = foundry.watched(PROGRAMS["graph"], tmp_path, debug=True, recommended=False, stdin=commands)
    said = ran.out + ran.err
    assert "step 0 · forward · fc1:out" in said, said
    assert "cannot be changed inside of a compiled step" in said
    assert "step 0 · backward · fc2:grad" in said
    assert "end of step 0" in said
    assert "fc2.weight:grad[0, 0]  float32[]\n  note: of step 0: the site did not run yet in step 1\n  0." in said, said


@pytest.mark.parametrize("name", ["jit", "graph"])
def test_a_parameter_is_changed_between_compiled_steps(foundry: Foundry, tmp_path: Path, name: str) -> None:
    """The compiled step goes on with the new value, and so does what reads the parameter afterwards."""
    commands = "step\nstep\nset fc2.bias:value[:] = 50\nbreak step 4\ncontinue\nprint fc2.bias:value\nquit\n"
    ran = foundry.watched(PROGRAMS[name], tmp_path, debug=True, recommended=False, stdin=commands)
    said = (ran.out + ran.err).partition("fc2.bias:value  float32[3]")[2]
    values = [float(word) for word in re.findall(r"-?\d+\.\d*", said)[:3]]
    assert all(40 < value < 60 for value in values), ran.out + ran.err


@pytest.mark.parametrize(("name", "uncompiled"), [("jit", "function"), ("graph", "cells")])
def test_a_compiled_step_is_traced_in_pynative_mode(
    foundry: Foundry, tmp_path: Path, name: str, uncompiled: str
) -> None:
    """Its ops are those of a training that is not compiled."""
    ran = foundry.watched(PROGRAMS[name], tmp_path, budget=0.05)
    (tmp_path / "plain").mkdir()
    plain = foundry.watched(PROGRAMS[uncompiled], tmp_path / "plain", budget=0.05)
    first, same = (next(t for t in one.rank.traces if t.reason == "first") for one in (ran, plain))
    assert [op.site for op in first.ops] == [op.site for op in same.ops]
    assert all(op.source is not None for op in first.ops)
    assert first.loss is not None
    assert {op.op for op in first.ops if op.gradient} >= {"linear", "relu"}


def test_the_first_compiled_step_is_written_down_kernel_by_kernel(foundry: Foundry, tmp_path: Path) -> None:
    """From MindSpore's own dump: names, lines, edges, and the values that PyNative mode gives."""
    ran = foundry.watched(PROGRAMS["graph"], tmp_path)
    (tmp_path / "plain").mkdir()
    plain = foundry.watched(PROGRAMS["cells"], tmp_path / "plain")
    trace = next(trace for trace in ran.rank.traces if trace.reason == "inspect")
    ops = {op.site: op for op in trace.ops}
    added, called = ops["fc1/add#0"], "self.fc2(self.drop(self.relu(self.norm(self.fc1(x)))))"
    assert added.source is not None
    assert called in added.source.code
    assert added.inputs[0].producer == ops["fc1/matmul#0"].index
    assert {str(op.phase) for op in trace.ops} == {"forward", "backward", "optimizer"}
    expected = next(row for row in plain.at("fc1:out") if row["step"] == 0)
    assert added.outputs[0].stats["mean"] == pytest.approx(expected["mean"], abs=1e-6)


def test_a_pass_that_went_wrong_is_run_again_and_leaves_no_trace(foundry: Foundry, tmp_path: Path) -> None:
    """The program counts its own calls: the list must be as it was."""
    ran = foundry.watched(PROGRAMS["spoilt"], tmp_path, budget=0.05)
    assert ran.code == 0, ran.err
    finding = diagnose(ran.recording)[0]
    line = next(k for k, text in enumerate(PROGRAMS["spoilt"].splitlines(), 1) if "# HERE" in text)
    assert (finding.step, finding.op) == (7, "log")
    assert finding.source is not None
    assert finding.source.line == line


def test_an_op_that_fails_behind_the_program_is_not_swallowed(foundry: Foundry, tmp_path: Path) -> None:
    """MindSpore raises when a value is read, and Tensonde may be the first to read it."""
    program = (
        HEAD
        + """
class Pick(nn.Cell):
    def construct(self, x, at):
        return ops.Gather()(x, at, 0)

pick = Pick()
try:
    pick(Tensor(data), Tensor(np.array([999], np.int32))).asnumpy()
except RuntimeError as problem:
    print("range" in str(problem))
"""
    )
    assert foundry.bare(program, tmp_path).out == "True\n"
    ran = foundry.watched(program, tmp_path)
    assert (ran.code, ran.out) == (0, "True\n"), ran.err


def test_an_exception_names_the_layer_and_its_line(foundry: Foundry, tmp_path: Path) -> None:
    program = PROGRAMS["function"].replace("nn.Dense(8, 3)", "nn.Dense(9, 3)")
    ran = foundry.watched(program, tmp_path)
    assert ran.code == 1
    assert "tensonde" not in ran.err.partition("Traceback")[2]
    finding = diagnose(ran.recording)[0]
    assert finding.rule == "layer-input-size"
    assert "fc2 (Dense) takes 9" in finding.title
    assert finding.source is not None
    assert "nn.Dense(9, 3)" in finding.source.code


def test_print_shows_values_and_gradients(foundry: Foundry, tmp_path: Path) -> None:
    program = (
        HEAD
        + """
import tensonde

w = ms.Parameter(Tensor(np.array([1.0, 2.0], np.float32)), name="w")

def forward(x):
    h = tensonde.print("grad", w * x, gradient=True)
    tensonde.print("h", h)
    return h.sum()

ms.value_and_grad(forward, None, [w])(Tensor(np.array([3.0, 4.0], np.float32)))
"""
    )
    ran = foundry.bare(program, tmp_path)
    assert ran.out.splitlines() == [
        "h Tensor(shape=[2], dtype=float32, value=[3., 8.])",
        "grad Tensor(shape=[2], dtype=float32, value=[1., 1.])",
    ]


def test_the_command_line(tmp_path: Path) -> None:
    """`tensonde run --blocking train.py`, as a user writes it."""
    (tmp_path / "train.py").write_text(PROGRAMS["cells"])
    ran = cli("run", "--blocking", "--record", "rec", "train.py", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "12 steps watched" in ran.err
    assert "no problem found" in ran.err


SCALED = """
import numpy as np
import mindspore as ms
from mindspore import Tensor, amp, nn, ops

ms.set_seed(0)
net = nn.Dense(4, 2)
optimizer = nn.SGD(net.trainable_params(), 0.1)
scaler = amp.StaticLossScaler(scale_value=2**10)

def forward(x, y):
    return scaler.scale(nn.CrossEntropyLoss()(net(x), y))  # compiled code is given a tensor whose gradient is watched

step = ms.value_and_grad(forward, None, optimizer.parameters)
x, y = Tensor(np.ones((3, 4), np.float32)), Tensor(np.zeros(3, np.int32))
for _ in range(3):
    loss, gradients = step(x, y)
    optimizer(scaler.unscale(gradients))
    print(float(scaler.unscale(loss).asnumpy()))
"""


@pytest.mark.parametrize("budget", [None, float("inf")])
def test_compiled_code_takes_a_tensor_whose_gradient_is_watched(
    foundry: Foundry, tmp_path: Path, budget: float | None
) -> None:
    bare, ran = foundry.bare(SCALED, tmp_path), foundry.watched(SCALED, tmp_path, budget=budget)
    assert ran.code == 0, ran.err
    assert ran.out == bare.out


def test_what_cannot_be_compiled_is_named_by_its_own_line(foundry: Foundry, tmp_path: Path) -> None:
    """The Python stack ends at the call of the compiled step."""
    program = PROGRAMS["graph"].replace(
        "        return self.fc2(", "        x = ops.cat((x, x[:2]), axis=1)  # HERE\n        return self.fc2("
    )
    ran = foundry.watched(program, tmp_path, budget=0.05)
    line = next(k for k, text in enumerate(program.splitlines(), 1) if "# HERE" in text)
    assert ran.code == 1
    source = diagnose(ran.recording)[0].source
    assert source is not None
    assert source.line == line
