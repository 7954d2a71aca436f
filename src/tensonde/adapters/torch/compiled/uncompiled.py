"""Compiled code of a step that is dumped, once more and uncompiled, beside the compiled call that the training goes on with.

What dynamo captured is run op by op, with autograd, from copies of the inputs: so modules, ops and gradients come under the
names of eager mode, and a function with a backward of its own keeps it. The gradients that reach the compiled results
are passed through this second pass as well. The values are those of uncompiled kernels; the training sees nothing of it.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from tensonde.adapters.torch.compiled.names import Names
from tensonde.adapters.torch.debugging.ops import op_name
from tensonde.adapters.torch.dumping.ops import of_the_program
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.current import suspended
from tensonde.adapters.torch.seams.hooks import hook
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.model.moment import Phase
from tensonde.model.site import Kind, Role, Site

if TYPE_CHECKING:
    from tensonde.adapters.torch.dumping.dump import Dump

_COMPUTES = ("call_function", "call_method", "call_module")
_OF_A_MODULE = ("_modules_", "_parameters_", "_buffers_")
"""In the names of inputs that are a module's own: parameters, buffers, other attributes."""
_NEAR = 4


@dataclass(slots=True, eq=False)
class Call:
    """One call of a module inside of the region, up to its `last` op. `taken` is what it reads from outside, `given` what is read
    of it outside. Both are empty where there are several: which of them is which is not known any more."""

    name: str
    type: str
    last: int = -1
    nodes: set[Node] = field(default_factory=set)
    taken: list[Node] = field(default_factory=list)
    given: list[Node] = field(default_factory=list)


class Uncompiled:
    """Belongs to one region; made when that is compiled, and called in its place by `beside`."""

    def __init__(
        self, state: RunState, dumping: Callable[[], Dump | None], gm: GraphModule, names: Names, home: str
    ) -> None:
        """`home` is the module whose own code was compiled, "" where it is none's."""
        self.state, self.gm, self.home = state, gm, home
        self._dumping = dumping
        with contextlib.suppress(Exception):  # what cannot be opened up is seen from outside
            _open_checkpoints(gm)
        self.writes_weights = True
        """The region may change tensors that require gradients; known when it is compiled."""
        self.stacks: dict[Node, list[Call]] = {}
        calls: dict[str, Call] = {}
        for node in gm.graph.nodes:
            if node.op not in _COMPUTES:
                continue
            self.stacks[node] = []
            for key, name, kind in names.calls(node):
                call = calls.setdefault(key, Call(name, kind))
                call.nodes.add(node)
                call.last = len(self.stacks)
                self.stacks[node].append(call)
        for call in calls.values():
            self._ends(call)
        self.calls = list(calls.values())

    def _ends(self, call: Call) -> None:
        taken: dict[Node, None] = {}
        for node in self.stacks:
            if node not in call.nodes:
                continue
            taken |= dict.fromkeys(source for source in node.all_input_nodes if source not in call.nodes)
            if any(user not in call.nodes for user in node.users):
                call.given.append(node)
        call.taken = [node for node in taken if not _own(node)]
        call.taken, call.given = (nodes if len(nodes) == 1 else [] for nodes in (call.taken, call.given))

    def beside(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """What is called in the place of `compiled`."""

        def run(*args: Any) -> Any:
            dump = self._dump()
            if dump is None:
                return compiled(*args)
            session = self.state.session
            mark = session.clock()
            second: Second | None = None
            try:
                second = Second(self, dump)
                second.forward(args)
            except Exception as problem:
                session.guard.contain("dumping inside compiled code", problem)
                second = None
            session.spent_since(mark)
            out = compiled(*args)
            if second is not None:
                try:
                    second.follow(out)
                except Exception as problem:
                    session.guard.contain("dumping inside compiled code", problem)
            return out

        vars(run).update(vars(compiled))
        return run

    def _dump(self) -> Dump | None:
        """The dump, where it wants something of this call."""
        state, dump = self.state, self._dumping()
        if dump is None or state.phase is Phase.BACKWARD:
            return None
        if dump.evaluating or (state.session.steps.has_optimizer and not torch.is_grad_enabled()):
            return None
        if dump.ops is not None:
            return dump
        sites = (
            Site(-1, call.name, role, Kind.MODULE, index, call.type)
            for call in self.calls
            for role in (Role.IN, Role.OUT, Role.GRAD, Role.GRAD_IN)
            for index in (None, 0, 1)
        )
        return dump if any(map(dump.choice.wants, sites)) else None

    def inputs(self, args: Sequence[Any]) -> list[Any]:
        """The arguments without a history; copies of what the region may change."""
        made = []
        for arg in args:
            if isinstance(arg, Tensor):
                weight = arg.requires_grad and arg.is_leaf and not self.writes_weights
                own = arg.detach() if weight else arg.detach().clone()
                made.append(own.requires_grad_(arg.requires_grad))
            else:
                made.append(arg)
        return made


class Second(Interpreter):  # type: ignore[misc]
    """One second pass: forward beside a compiled call, backward when that call's backward pass begins."""

    def __init__(self, region: Uncompiled, dump: Dump) -> None:
        super().__init__(region.gm)
        self.extra_traceback = False
        self.region, self.dump, self.state = region, dump, region.state
        self.around = region.state.stack[-1].name if region.state.stack else ""
        """The module that was compiled: it is dumped from outside, as it ran."""
        self._entries = {entry.name: entry for entry in region.state.roster.entries.values()}
        self._open: list[tuple[Call, int, list[Any]]] = []
        self._passed = 0
        self._leaves: list[Tensor] = []
        self._made: Sequence[Any] = ()

    def forward(self, args: Sequence[Any]) -> None:
        given = self.region.inputs(args)
        self._leaves = [arg for arg in given if isinstance(arg, Tensor) and arg.requires_grad]
        with _apart():
            made = self.run(*given)
        self._made = made if isinstance(made, list | tuple) else (made,)

    def run_node(self, n: Node) -> Any:
        if n.op == "output":
            self._go_to([])
        if n.op not in _COMPUTES:
            return super().run_node(n)
        self._go_to(self.region.stacks[n])
        self._passed += 1
        ops, name = self.dump.ops, _op(n)
        if ops is None or name is None:
            return super().run_node(n)
        module = self.region.stacks[n][-1].name if self.region.stacks[n] else self.region.home or self.around
        given = self.fetch_args_kwargs_from_env(n)
        if name == "getitem" and not isinstance(given[0][0], Tensor):
            return super().run_node(n)
        if self.dump.choice.everything and not of_the_program(self._entries.get(module), given):
            return super().run_node(n)
        address, call = ops.begins(module, name, given)
        out = super().run_node(n)
        ops.ends(address, name, call, given, out)
        return out

    def _go_to(self, stack: list[Call]) -> None:
        """The next op runs inside of these calls: others are left, new ones entered."""
        while self._open and self._open[-1][0].last <= self._passed:
            call, number, taken = self._open.pop()
            if number >= 0:
                self.dump.left(call, number, taken, {}, self._values(call.given))
        inside = {call for call, _, _ in self._open}
        for call in stack:
            if call not in inside and call.name != self.around:
                taken = self._values(call.taken)
                self._open.append((call, self.dump.entering(call, taken, {}), taken))

    def _values(self, nodes: list[Node]) -> list[Any]:
        return [value for node in nodes for value in tensors_in(self.env.get(node))]

    # -- backward --------------------------------------------------------------------------------

    def follow(self, out: Any) -> None:
        """Passes on the gradients that reach the compiled results."""
        given = out if isinstance(out, list | tuple) else (out,)
        pairs = [
            (ours, theirs)
            for ours, theirs in zip(self._made, given, strict=False)
            if isinstance(ours, Tensor) and isinstance(theirs, Tensor)
            if ours.requires_grad and theirs.requires_grad and not theirs.is_leaf
        ]
        start = next((node for _, theirs in pairs if (node := _compiled_node(theirs)) is not None), None)
        self._made = ()
        if start is None or not self._leaves:
            return
        arrived: dict[int, tuple[Tensor, Tensor]] = {}

        def keep(k: int, ours: Tensor) -> Callable[[Any], None]:
            def tap(gradient: Any) -> None:
                if gradient is not None:
                    arrived[k] = (ours, gradient)

            return tap

        for k, (ours, theirs) in enumerate(pairs):
            hook(theirs, keep(k, ours))

        def begins(_: Any) -> None:
            pending, leaves = list(arrived.values()), self._leaves
            arrived.clear()
            self._leaves = []
            if leaves and pending:
                try:
                    self._backward(pending, leaves)
                except Exception as problem:
                    self.state.session.guard.contain("dumping gradients inside compiled code", problem)

        start.register_prehook(begins)

    def _backward(self, arrived: list[tuple[Tensor, Tensor]], leaves: list[Tensor]) -> None:
        session = self.state.session
        mark = session.clock()
        with _apart():
            ends, gradients = zip(*arrived, strict=True)
            torch.autograd.grad(ends, leaves, gradients, allow_unused=True)
        session.spent_since(mark)


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """Nothing that is observed, no random number that the training would miss."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices), suspended():
        yield


def _open_checkpoints(gm: GraphModule) -> None:
    """Activation checkpointing is a graph in the graph: its ops are put in its place. The values are the same, and nothing is saved."""
    for node in [node for node in gm.graph.nodes if str(node.target) == "tag_activation_checkpoint"]:
        body = getattr(gm, str(node.args[0].target))
        inner = [place for place in body.graph.nodes if place.op == "placeholder"]
        items = list(node.users)
        if any(place.op == "get_attr" for place in body.graph.nodes) or len(inner) != len(node.args) - 1:
            continue
        if not all(item.target is operator.getitem for item in items):
            continue
        with gm.graph.inserting_before(node):
            made = gm.graph.graph_copy(body.graph, dict(zip(inner, node.args[1:], strict=True)))
        for item in items:
            item.replace_all_uses_with(made[item.args[1]])
            gm.graph.erase_node(item)
        gm.graph.erase_node(node)
    gm.graph.lint()
    gm.recompile()


def _own(node: Node) -> bool:
    return node.op == "get_attr" or (
        node.op == "placeholder" and any(mark in str(node.target) for mark in _OF_A_MODULE)
    )


def _op(node: Node) -> str | None:
    if node.op == "call_function":
        return op_name(node.target)
    return op_name(getattr(Tensor, str(node.target), None)) if node.op == "call_method" else None  # type: ignore[arg-type]


def _compiled_node(tensor: Tensor) -> Any:
    """The node of the autograd graph that stands for the compiled call; views may come between."""
    waiting = [tensor.grad_fn]
    for _ in range(_NEAR):
        for node in waiting:
            if node is not None and node.name() == "CompiledFunctionBackward":
                return node
        waiting = [following for node in waiting if node is not None for following, _ in node.next_functions]
    return None
