"""`tensonde.print`, from eager and from compiled code."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import tensonde


class Talkative(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2, bias=False)
        nn.init.ones_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        tensonde.print("x is", x)
        h = tensonde.print("grad of h", self.linear(x), gradient=True)
        tensonde.print("sum", h.sum(), "of", h)
        return (h * 3).sum()


EXPECTED = """x is
Tensor(shape=[1, 2], dtype=float32, value=[[1., 2.]])
sum 6 of Tensor(shape=[1, 2], dtype=float32, value=[[3., 3.]])
grad of h Tensor(shape=[1, 2], dtype=float32, value=[[3., 3.]])
""".replace("x is\n", "x is ")


@pytest.mark.parametrize("backend", [None, "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_prints_in_order_forward_and_backward(backend: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = Talkative()
    call = model if backend is None else torch.compile(model, backend=backend, fullgraph=True)
    for _ in range(2):
        call(torch.tensor([[1.0, 2.0]])).backward()
    printed = capsys.readouterr()
    assert printed.out == EXPECTED * 2
    assert printed.err == ""
    assert torch.equal(model.linear.weight.grad, torch.tensor([[6.0, 12.0], [6.0, 12.0]]))
    assert not torch._dynamo.utils.counters["graph_break"]


def test_nothing_is_compiled_again_for_a_print(capsys: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    call = torch.compile(Talkative(), backend="aot_eager", fullgraph=True)
    for k in range(5):
        call(torch.full((1, 2), float(k))).backward()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert capsys.readouterr().out.count("x is") == 5


def test_large_tensors_are_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.arange(10_000.0).reshape(100, 100)
    x[3, 3] = float("nan")
    tensonde.print("big", x)
    out = capsys.readouterr().out
    assert "shape=[100, 100]" in out
    assert "min=0, max=9999" in out
    assert "nan=1" in out
    assert "..." in out
    assert len(out) < 1000


def test_precision_and_other_things(capsys: pytest.CaptureFixture[str]) -> None:
    before = torch._tensor_str.PRINT_OPTS.precision
    tensonde.print("a", 1, None, torch.tensor([1 / 3]), torch.tensor(2), sep="|", precision=2)
    assert capsys.readouterr().out == "a|1|None|Tensor(shape=[1], dtype=float32, value=[0.33])|2\n"
    assert torch._tensor_str.PRINT_OPTS.precision == before
