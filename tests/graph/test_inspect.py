"""`tensonde.inspect`: single ops, functions, modules, gradients, compiled functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tensonde
from tensonde.errors import UsageError
from tensonde.store.reader import Recording


def add_func(x: Tensor, y: Tensor) -> Tensor:
    z = torch.add(x, y)
    return torch.add(z, x)


def test_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    seen = tensonde.inspect(add_func, torch.ones(3, 3), torch.ones(3, 3))
    assert [op.site for op in seen] == ["/add#0", "/add#1"]
    assert torch.equal(seen.result, torch.full((3, 3), 3.0))
    assert torch.equal(seen.value("add#0"), torch.full((3, 3), 2.0))
    assert seen[1].source is not None
    assert "torch.add(z, x)" in seen[1].source.code
    assert seen[1].inputs[0].producer == 0
    seen.print()
    assert "/add#1" in capsys.readouterr().out


def test_gradients_of_all_inputs() -> None:
    x, y = torch.tensor(1.0), torch.tensor(2.0)
    seen = tensonde.inspect(lambda x, y: x * y, x, y, wrt="all")
    assert {name: float(g) for name, g in seen.gradients.items()} == {"x": 2.0, "y": 1.0}
    assert not x.requires_grad
    assert set(tensonde.inspect(lambda x, y: x * y, x, y, wrt=y).gradients) == {"y"}
    assert set(tensonde.inspect(lambda x, y: x * y, x, y, wrt=["x", 1]).gradients) == {"x", "y"}


def test_wrong_use_is_told() -> None:
    with pytest.raises(UsageError, match=r"among the inputs \(x, y\)"):
        tensonde.inspect(add_func, torch.ones(1), torch.ones(1), wrt="z")
    with pytest.raises(UsageError, match=r"only floating-point tensors have gradients"):
        tensonde.inspect(add_func, torch.ones(1, dtype=torch.int32), torch.ones(1), wrt="x")
    with pytest.raises(UsageError, match="something to call"):
        tensonde.inspect(3)
    with pytest.raises(UsageError, match="the nearest are /add#0"):
        tensonde.inspect(add_func, torch.ones(1), torch.ones(1)).value("add#7")


def test_a_training_step_of_a_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 10))
    criterion = nn.CrossEntropyLoss()
    seen = tensonde.inspect(lambda x, y: criterion(net(x), y), torch.ones(4, 1, 8, 8), torch.ones(4, dtype=torch.long))
    loss = criterion(net(torch.ones(4, 1, 8, 8)), torch.ones(4, dtype=torch.long))
    loss.backward()
    assert float(seen.result) == pytest.approx(float(loss))
    assert torch.allclose(seen.gradients["4.weight"], net[4].weight.grad)
    assert net[1].num_batches_tracked == 2  # one call each
    assert torch.equal(seen.gradient("4/linear#0"), seen.gradient("4/linear#0"))
    assert seen["4/linear#0"].gradient["norm"] == pytest.approx(float(seen.gradient("4/linear#0").norm()))
    assert [op.op for op in seen.filter("**/relu*")] == ["relu"]
    assert len(seen.filter(where=lambda op: op.source is None)) == 0
    assert "relu" in seen.plot("norm")
    with pytest.raises(UsageError, match="no field 'colour'"):
        seen.plot("colour")
    recording = Recording.open(seen.save(tmp_path / "inspected"))
    (rank,) = recording.ranks
    assert {site.address for site in rank.sites.values()} >= {"4/linear#0:out", "4/linear#0:grad", "2/relu#0:out"}
    assert rank.traces[0].reason == "inspect"
    value = next(value for value in rank.values if value.site == "4/linear#0:out")
    assert rank.load(value).tolist() == seen.value("4/linear#0").tolist()


def test_a_compiled_function_shows_its_graphs() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: torch.softmax(x * 2, 0).log().sum(), backend="aot_eager")
    x = torch.tensor([0.1, 0.2])
    seen = tensonde.inspect(compiled, x, wrt="x")
    expected = x.clone().requires_grad_()
    torch.log_softmax(expected * 2, 0).sum().backward()
    names = [op.site for op in seen]
    assert {"/mul#0", "/softmax-exp#0", "/softmax#0", "/log#0", "/sum#0"} <= set(names)
    assert {str(op.phase) for op in seen} == {"forward", "backward"}
    assert torch.allclose(seen.gradients["x"], expected.grad)
    assert torch.allclose(seen.value("/softmax#0"), torch.softmax(x * 2, 0))
    assert not seen.trace.notes


X = torch.randn(2, 5, 8)
LINEAR = nn.Linear(8, 2)
BODY = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(5), nn.Dropout(0.5))


def through_linear(x: Tensor) -> Tensor:
    return LINEAR(x).relu().sum()


def within(module: nn.Module) -> Any:
    """A function that has the module only in its closure, one call deeper."""

    def deeper(x: Tensor) -> Tensor:
        return module(x)

    return lambda x: deeper(x).sum()


CASES: dict[str, tuple[Any, tuple[Tensor, ...]]] = {
    "conv": (nn.Conv2d(3, 4, 3), (torch.randn(1, 3, 8, 8),)),
    "sequential": (nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), (X,)),
    "layer norm": (nn.LayerNorm(8), (X,)),
    "batch norm": (BODY, (X,)),
    "lstm": (nn.LSTM(8, 4, batch_first=True), (X,)),
    "attention": (nn.MultiheadAttention(8, 2, batch_first=True), (X, X, X)),
    "transformer": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (X,)),
    "functional": (lambda x: nn.functional.cross_entropy(nn.functional.relu(x), torch.ones(2, 8).long()), (X,)),
    "function around a module": (through_linear, (X,)),
    "closure": (within(BODY), (X,)),
}


def tensors_of(fn: Any) -> dict[int, Tensor]:
    """The parameters that a case has."""
    held = [fn] if isinstance(fn, nn.Module) else [LINEAR] if fn is through_linear else []
    held += [c.cell_contents.__closure__[0].cell_contents for c in getattr(fn, "__closure__", None) or ()]
    return {id(parameter): parameter for module in held for parameter in module.parameters()}


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_modules_and_functions(name: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing fails, every op has its inputs, every parameter its gradient, and what the call changes it changes once."""
    monkeypatch.setenv("TENSONDE_STRICT", "1")
    torch._dynamo.reset()
    fn, args = CASES[name]
    counted = int(BODY[1].num_batches_tracked)
    seen = tensonde.inspect(fn if how == "eager" else torch.compile(fn, backend="aot_eager"), *args)
    assert len(seen)
    source = {"zeros", "ones", "rand", "full", "scalar_tensor"}
    assert all(op.inputs for op in seen if op.op not in source), [op for op in seen if not op.inputs]
    parameters = tensors_of(fn)
    assert {tuple(g.shape) for g in seen.gradients.values()} == {tuple(p.shape) for p in parameters.values()}
    assert len(seen.gradients) == len(parameters)
    assert all(parameter.grad is None for parameter in parameters.values())
    assert int(BODY[1].num_batches_tracked) == counted + (name in ("batch norm", "closure"))
    assert seen.trace.notes == (
        ("the compiler leaves this code as it is",) if (name, how) == ("lstm", "compiled") else ()
    )
    if parameters and how == "eager":
        given = {fact.name.rpartition(".")[2] for op in seen for fact in op.inputs if fact.name}
        assert given & {"weight", "weight_ih_l0", "in_proj_weight"}
