"""NaN and Inf anywhere in a graph show in the nodes that are chosen to tell of them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx

from tensonde.adapters.torch.compiled.names import NodeName, aten_name
from tensonde.adapters.torch.compiled.telling import telling
from tensonde.adapters.torch.compiled.watching import multiple, watchable
from tensonde.model.site import Role


def layer_norm(x: Tensor) -> Tensor:
    variance, mean = torch.var_mean(x, -1, keepdim=True, correction=0)
    return (x - mean) * (variance + 1e-5).rsqrt() * 1.5 + 0.5


def gelu(x: Tensor) -> Tensor:
    x = x + 1
    return 0.5 * x * (1 + torch.erf(x * 0.7071))


def slope(x: Tensor) -> Tensor:
    return x * torch.exp(x * x * -0.5) * 0.3989


def softmax(x: Tensor) -> Tensor:
    raised = (x - x.amax(-1, keepdim=True)).exp()
    return raised / raised.sum(-1, keepdim=True)


def masked(x: Tensor) -> Tensor:
    return torch.where(x > 0, x.abs().sqrt(), x * 2).mean()


def parts(x: Tensor) -> Tensor:
    return torch.cat([x.neg(), (x * 3).t().reshape(4, 4)]).clamp(-1, 1)


FUNCTIONS = [layer_norm, gelu, slope, softmax, masked, parts]


def traced(function: Callable[[Tensor], Tensor]) -> tuple[GraphModule, list[Node], frozenset[str]]:
    gm = make_fx(function, tracing_mode="fake")(torch.zeros(4, 4))
    nodes = watchable(gm)
    (out,) = (node for node in gm.graph.nodes if node.op == "output")
    names = {
        node: NodeName(f"/{function.__name__}-{node.name}#0", Role.OUT, function.__name__, aten_name(node), "", "", None,
                       whole=node is out.args[0])
        for node in gm.graph.nodes if node.op == "call_function"
    }  # fmt: skip
    return gm, nodes, telling(nodes, names, backward=False)


class Spoiled(Interpreter):
    """Puts a bad number into the result of one node."""

    def __init__(self, gm: GraphModule, node: Node, bad: float) -> None:
        super().__init__(gm)
        self.node, self.bad = node, bad
        self.values: dict[str, Any] = {}

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n is self.node:
            value = value.clone()
            value.view(-1)[0] = self.bad
        self.values[n.name] = value
        return value


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_whatever_is_wrong_shows(function: Callable[[Tensor], Tensor]) -> None:
    gm, nodes, chosen = traced(function)
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    assert all(bool(torch.isfinite(value).all()) for value in run(gm, nodes[-1], 1.0, x).values())
    for node in nodes:
        source, factor = multiple(node)
        if source is not node and abs(factor) <= 1:
            continue  # wrong only where its source is
        for bad in (nan, inf, -inf):
            values = run(gm, node, bad, x)
            assert any(not torch.isfinite(values[name]).all() for name in chosen), (node, bad)


def run(gm: GraphModule, node: Node, bad: float, x: Tensor) -> dict[str, Tensor]:
    spoiled = Spoiled(gm, node, bad)
    spoiled.run(x)
    return {
        name: value for name, value in spoiled.values.items() if isinstance(value, Tensor) and value.is_floating_point()
    }


def test_steps_that_lose_nothing_need_no_digest() -> None:
    assert [len(traced(function)[2]) for function in (layer_norm, gelu)] == [2, 1]  # and the variance, before rsqrt
    _, nodes, chosen = traced(slope)
    assert "mul" in chosen  # x * x: exp makes 0 of its Inf
    assert len(chosen) < len(nodes)
