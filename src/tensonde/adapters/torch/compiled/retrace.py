"""The compiled calls of this step once more, node by node, as a trace: where a bad value came from inside of compiled code.

The forward graphs run from the inputs that they had, the backward graphs from the gradients that came from outside and
from what the forward just made again. Nothing of the training is touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.fx import Node

from tensonde.adapters.torch.compiled.interpret import NodeByNode, fresh
from tensonde.adapters.torch.compiled.watched import CompiledGraph
from tensonde.adapters.torch.compiled.watching import MOVES, base
from tensonde.adapters.torch.tensors import dtype_name
from tensonde.adapters.torch.tracing.measure import Measure, nonfinite
from tensonde.model.moment import Phase
from tensonde.model.trace import OpRecord, TensorFact, Trace

MOST_OPS = 20_000
_COMPARED = frozenset({"where", "masked_fill"})


class Retrace:
    """Collects the ops of one step. `names` are those of parameters, by the tensor's id."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self.names = names
        self._measure = Measure()
        self.ops: list[OpRecord] = []
        self.notes: list[str] = []
        self.exact = True
        self.loss: int | None = None
        self._facts: dict[str, TensorFact] = {}
        self._whole: dict[str, int] = {}
        """The op of the function API → its op in the trace."""
        self._gradients: dict[int, dict[str, float]] = {}
        self._order = 0

    def forward(self, graph: CompiledGraph) -> dict[str, Any]:
        """Runs a forward graph again; gives its values by node, for the backward graph."""
        kept = graph.kept
        if kept is None:
            return {}
        if not kept.unchanged:
            self.exact = False
            self.notes.append("inputs of a compiled call were changed since")
        if kept.random is not None:
            self.exact = False
            self.notes.append("compiled random numbers cannot be made again: others were used")
        args = fresh(graph.plain, kept.args)
        self.enter(graph, args)
        values: dict[str, Any] = dict(zip(graph.placeholders, args, strict=True))

        def visit(node: Node, value: Any) -> None:
            values[node.name] = value
            self.record(graph, node, value)

        with torch.no_grad(), torch._C._DisableAutocast(), torch.random.fork_rng(devices=[]):
            if kept.random is not None:
                torch.default_generator.set_state(kept.random)
            NodeByNode(graph.plain, visit).run(*args)
        self._find_loss(graph)
        return values | {theirs: values[ours] for theirs, ours in graph.random_states.items()}

    def backward(self, graph: CompiledGraph, values: Mapping[str, Any]) -> None:
        """The backward graph, from what the forward made; its bad values are put down to the forward ops."""
        if graph.kept is None:
            return
        args = []
        for name, arg in zip(graph.placeholders, graph.kept.args, strict=True):
            if arg is None and name not in values:
                self.notes.append(f"the backward pass could not be run again: {name} is not at hand")
                return
            args.append(values[name] if arg is None else arg)

        def visit(node: Node, value: Any) -> None:
            self._turned(graph, node, value, runner)

        runner = NodeByNode(graph.plain, visit)
        with torch.no_grad(), torch._C._DisableAutocast(), torch.random.fork_rng(devices=[]):
            runner.run(*fresh(graph.plain, args))

    def trace(self, step: int, reason: Literal["replay", "inspect"] = "replay") -> Trace:
        ops = tuple(
            OpRecord(**{**_fields(op), "gradient": self._gradients.get(op.index, {})})
            if op.index in self._gradients
            else op
            for op in self.ops
        )
        return Trace(step, reason, ops, self.exact, self.loss, tuple(dict.fromkeys(self.notes)))

    # -- ops -------------------------------------------------------------------------------------

    def enter(self, graph: CompiledGraph, args: Sequence[Any]) -> None:
        """A graph is about to run with these arguments."""
        self._facts = {}
        for name, arg in zip(graph.placeholders, args, strict=True):
            if isinstance(arg, Tensor):
                self._facts[name] = self._fact(arg, None)

    def _fact(self, tensor: Tensor, producer: int | None) -> TensorFact:
        return TensorFact(
            len(self._facts), tuple(tensor.shape), dtype_name(tensor), tensor.is_floating_point(),
            self.names.get(id(tensor), ""), producer, self._measure(tensor),
        )  # fmt: skip

    def record(self, graph: CompiledGraph, node: Node, value: Any) -> int | None:
        """A node gave this. Its place among the ops, None where it only shows other numbers in another shape."""
        name = graph.names[node]
        given = list(node.all_input_nodes)
        if not isinstance(value, Tensor):
            return None  # several results: each is an item of its own
        if node.op == "call_function" and name.aten in MOVES and base(node).name in self._facts:
            source = self._facts[base(node).name]
            self._facts[node.name] = TensorFact(
                source.id,
                tuple(value.shape),
                source.dtype,
                source.requires_grad,
                source.name,
                source.producer,
                source.stats,
            )
            return None
        if len(self.ops) >= MOST_OPS:
            return None
        index = len(self.ops)
        fact = self._facts[node.name] = self._fact(value, index)
        sources = [
            inner for source in given for inner in ([source] if source.name in self._facts else source.all_input_nodes)
        ]
        self.ops.append(
            OpRecord(
                index, name.aten, name.name, name.module, name.module_type, name.source,
                tuple(self._facts[source.name] for source in sources if source.name in self._facts), (fact,),
                {str(k): arg for k, arg in enumerate(node.args) if isinstance(arg, int | float | str | bool)},
                Phase.BACKWARD if graph.backward else Phase.FORWARD,
            )
        )  # fmt: skip
        if name.whole:
            self._whole[_call_of(name.name, name.op)] = index
        return index

    def _find_loss(self, graph: CompiledGraph) -> None:
        """The last output that is bad; a scalar before others."""
        bad = [
            fact
            for output in graph.outputs
            if output is not None and (fact := self._facts.get(output)) is not None and nonfinite(dict(fact.stats))
        ]
        scalars = [fact for fact in bad if not fact.shape]
        for fact in scalars[-1:] or bad[:1]:
            if fact.producer is not None:
                self.loss = fact.producer

    def _turned(self, graph: CompiledGraph, node: Node, value: Any, runner: NodeByNode) -> None:
        """A node of the backward pass that was given finite numbers and gave others."""
        name = graph.names[node]
        if not isinstance(value, Tensor) or not value.is_floating_point() or name.aten in MOVES:
            return
        stats = self._measure(value)
        if not nonfinite(stats) or any(nonfinite(self._measure(given)) for given in runner.inputs_of(node)):
            return
        if any(user.op == "call_function" and graph.names[user].aten in _COMPARED for user in node.users):
            return  # masked right afterwards
        index = self._whole.get(_call_of(name.name, name.op))
        if index is None or index in self._gradients:
            return
        self._order += 1
        found = {"in.order": float(self._order)}
        found |= {f"in.{field}": stats[field] for field in ("nan", "pos_inf", "neg_inf")}
        self._gradients[index] = found


def _call_of(name: str, op: str) -> str:
    """The call of the function API that a node's name stands for: `fc/linear-mm_1#0` is of `fc/linear#0`."""
    module, _, rest = name.rpartition("/")
    return f"{module}/{op}#{rest.rpartition('#')[2]}"


def _fields(op: OpRecord) -> dict[str, Any]:
    return {name: getattr(op, name) for name in OpRecord.__slots__}
