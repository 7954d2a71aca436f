"""`tensonde.inspect` of compiled code: the nodes of its graphs, forward and backward, as the compiler gets them.

The code is captured once more with a backend that runs node by node; the compiled code itself is called, too, and the
two results are compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from tensonde.adapters.torch.compiled import compiling
from tensonde.adapters.torch.compiled.graphs import copy_of, returned_outputs
from tensonde.adapters.torch.compiled.interpret import NodeByNode
from tensonde.adapters.torch.compiled.names import Names
from tensonde.adapters.torch.compiled.retrace import Retrace
from tensonde.adapters.torch.compiled.rounding import apart
from tensonde.adapters.torch.compiled.verify import TOLERANCE
from tensonde.adapters.torch.compiled.watched import CompiledGraph
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.model.site import Role

if TYPE_CHECKING:
    from tensonde.adapters.torch.script.inspection import Scene

KEPT_BYTES = 256 << 20


def original_of(fn: Any) -> Any:
    """What was compiled; None where nothing was."""
    if isinstance(fn, nn.Module):
        return getattr(fn, "_orig_mod", None)
    return getattr(fn, "_torchdynamo_orig_callable", None)


class Capture:
    """Every node of the graphs of one compiled call, with its value."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.ops = Retrace({})
        self.random = False
        self.values: dict[tuple[int, Role, int], Tensor] = {}
        self.count = 0
        self._left = KEPT_BYTES

    def call(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from torch._dynamo.backends.common import aot_autograd
        from torch._inductor.decomposition import select_decomp_table

        names = Names(lambda variable: "", lambda variable: variable, self._known)

        def compiler(*, backward: bool) -> Any:
            def compile(gm: GraphModule, inputs: Any) -> Any:
                plain = copy_of(gm)
                self._meet(plain)
                named = names.of(plain, backward=backward, returned=returned_outputs())
                graph = CompiledGraph(None, None, self.count, plain, named, backward=backward)
                self.count += 1

                def run(given: list[Any]) -> Any:
                    return self._run(graph, given)

                run._boxed_call = True  # type: ignore[attr-defined]
                return run

            return compile

        backend = aot_autograd(
            fw_compiler=compiler(backward=False),
            bw_compiler=compiler(backward=True),
            decompositions=select_decomp_table(),
        )
        return torch.compile(original, backend=backend)(*args, **kwargs)

    def _known(self, id: int) -> str | None:
        entry = self._scene.entries.get(id)
        if entry is None:
            return None
        return "" if entry.name == "self" else entry.name  # the module that was compiled has no name of its own

    def _meet(self, gm: GraphModule) -> None:
        """The modules whose calls are in the graph; dynamo knows by which expression the code has them."""
        scopes = compiling.scopes()
        if not scopes:
            return
        for node in gm.graph.nodes:
            for key, (path, _) in list((node.meta.get("nn_module_stack") or {}).items())[:1]:
                number = str(key).partition("@")[0]
                if number.isdecimal() and int(number) not in self._scene.entries:
                    found = _evaluated(str(path), scopes)
                    if isinstance(found, nn.Module) and id(found) == int(number):
                        self._scene.meet(found, _variable(str(path), scopes))

    def _run(self, graph: CompiledGraph, given: list[Any]) -> Any:
        args = list(given)
        given.clear()
        self.random |= graph.random
        self.ops.names = {key: name for key, (name, _) in self._scene.parameters.names.copy().items()}
        self.ops.enter(graph, args)

        def visit(node: Node, value: Any) -> None:
            index = self.ops.record(graph, node, value)
            if index is not None and isinstance(value, Tensor) and value.numel() * value.element_size() <= self._left:
                self._left -= value.numel() * value.element_size()
                self.values[index, Role.OUT, 0] = value.detach().clone()

        with torch.no_grad(), torch._C._DisableAutocast():
            return NodeByNode(graph.plain, visit).run(*args)


def _evaluated(path: str, scopes: Sequence[dict[str, Any]]) -> Any:
    """What dynamo's expression for something stands for: `G['net']`, `L['self'].parts['head']`."""
    try:
        return eval(path, {"L": scopes[0], "G": scopes[1]})
    except Exception:
        return None


def _variable(path: str, scopes: Sequence[dict[str, Any]]) -> str:
    """What the code itself calls it."""
    cell = re.fullmatch(r"(.+)\.__closure__\[(\d+)\]\.cell_contents", path)
    if cell is not None:
        code = getattr(_evaluated(cell[1], scopes), "__code__", None)
        return str(code.co_freevars[int(cell[2])]) if code is not None else ""
    words = re.findall(r"[A-Za-z_]\w*", path)
    return words[-1] if words else ""


def difference(right: Any, got: Any) -> str:
    """Whether the compiled result is that of the graph, in words; "" where it is."""
    for a, b in zip(tensors_in(right), tensors_in(got), strict=False):
        distance, largest, _ = apart(a, b)
        if distance > TOLERANCE.get(a.dtype, 0.0):
            return f"the compiled result departs from that of its own graph by {distance:.2g} of its norm (at most {largest:.4g})"
    return ""
