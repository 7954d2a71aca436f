"""Gradient hooks: the three examples of the guide, handles, compiled code, and their trace in the recording."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import tensonde
from launch import Foundry
from tensonde.diagnose.diagnose import diagnose
from tensonde.errors import UsageError

EXAMPLE = Path(__file__).parents[2] / "examples" / "hooks.py"
EXPECTED = """\
1. (4.0, (8.0, 6.0))
2. gradient 2.0
2. (4.0, (4.0, 4.0))
3. backward input [1.0] output [1.0]
3. (2.0, (2.0,))
"""


def test_the_examples_of_the_guide_and_what_the_recording_says_of_them(foundry: Foundry, tmp_path: Path) -> None:
    assert foundry.bare(EXAMPLE, tmp_path).out == EXPECTED
    ran = foundry.watched(EXAMPLE, tmp_path)
    assert ran.out == EXPECTED
    found = [(f.title, f.severity) for f in diagnose(ran.recording) if f.rule == "gradient-hook"]
    assert found == [
        ("A gradient hook on tensor () changes the gradients: <lambda>", "info"),
        ("A gradient hook on HookBackward looks on: <lambda>", "info"),
    ]  # the third was removed


def test_handles_are_removable() -> None:
    x = torch.ones(3, requires_grad=True)
    handle = tensonde.hook(x, lambda grad: grad * 10)
    (x * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [20.0] * 3
    handle.remove()
    handle.remove()
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0] * 3
    linear = nn.Linear(2, 2)
    calls: list[int] = []
    with tensonde.hook_backward(linear, lambda m, i, o: calls.append(1)):
        linear(torch.ones(1, 2, requires_grad=True)).sum().backward()
    linear(torch.ones(1, 2, requires_grad=True)).sum().backward()
    assert calls == [1]
    twice = tensonde.HookBackward(lambda grad: grad * 2)
    twice.remove()
    x.grad = None
    twice(x).sum().backward()
    assert x.grad.tolist() == [1.0] * 3


def test_a_module_hook_may_change_the_gradient() -> None:
    relu = nn.ReLU()
    tensonde.hook_backward(relu, lambda m, grad_input, grad_output: (grad_input[0] * 3,))
    x = torch.ones(2, requires_grad=True)
    relu(x * 1).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0] * 2


@pytest.mark.parametrize("way", ["eager", "compiled", "functional"])
def test_the_identity_in_eager_compiled_and_functional_code(way: str) -> None:
    seen: list[list[float]] = []
    look, twice = tensonde.HookBackward(lambda g: seen.append(g.tolist())), tensonde.HookBackward(lambda g: g * 2)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (twice(look(x * y)) * y).sum()

    x, y = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
    if way == "functional":
        gradients, _ = torch.func.grad_and_value(function, argnums=(0, 1))(x.detach(), y.detach())
    else:
        run = torch.compile(function, fullgraph=True, backend="aot_eager") if way == "compiled" else function
        run(x, y).backward()
        gradients = (x.grad, y.grad)
    assert [g.tolist() for g in gradients] == [[8.0] * 3, [6.0] * 3]
    if way != "functional":
        assert seen == [[4.0] * 3]


def test_a_tensor_hook_in_compiled_code_breaks_the_graph_and_works() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        z = x * 3
        tensonde.hook(z, lambda grad: grad * 2)
        return z.sum()

    x = torch.ones(2, requires_grad=True)
    torch.compile(function, backend="aot_eager")(x).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6.0] * 2


def test_wrong_use() -> None:
    with pytest.raises(UsageError, match="takes a tensor, and int"):
        tensonde.hook(3, print)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs no gradient"):
        tensonde.hook(torch.ones(2), print)
    with pytest.raises(UsageError, match="takes a module, and str"):
        tensonde.hook_backward("relu", print)
    with pytest.raises(UsageError, match="a hook is a function"):
        tensonde.HookBackward(3)  # type: ignore[arg-type]
