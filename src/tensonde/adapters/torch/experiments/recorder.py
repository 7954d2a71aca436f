"""Takes down every op of a step while it is run again, down to what the dispatcher calls, so that it can be computed a third time.

A dispatch mode sees all that torch computes, also inside of its own functions. A looker beside it sees where Python reads values.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tensonde.adapters.torch.randomness import Drawn
from tensonde.adapters.torch.replay.restore.writes import _UNDECLARED, _targets, header, storage_of
from tensonde.adapters.torch.seams.function_mode import Looker, unseen
from tensonde.experiments.step import NotPossible
from tensonde.model.site import SourceLine
from tensonde.program.frames import frame_line, is_user, owner_of

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.state import RunState

MOST_NODES = 20_000
MOST_BYTES = 1 << 29
"""Of all that a step makes."""
OFTEN = 64
"""Ops after which the time is looked at."""
_READS = frozenset(
    ("item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__", "__contains__")
)
_QUIET = frozenset(("_local_scalar_dense", "is_same_size", "equal"))
"""Ops that give no tensor: what Python makes of them is not known."""
_ORDINARY = (Tensor, torch.nn.Parameter, torch.nn.Buffer)


class Ref(int):
    """Stands for a value in the arguments of a node."""


class Node:
    __slots__ = ("args", "func", "grad", "kwargs", "module", "outputs", "random", "source", "type", "writes")

    def __init__(self, func: Any, args: Any, kwargs: Any, grad: bool, random: Drawn | None) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.grad, self.random = grad, random
        self.outputs: list[Ref | None] = []
        self.writes: list[Ref] = []
        self.source: SourceLine | None = None
        self.module = self.type = ""


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Holds what the step makes as long as it lives itself."""

    def __init__(self, state: RunState, boundary: CodeType) -> None:
        super().__init__()
        self._state = state
        self.boundary = boundary
        self.outside: tuple[SourceLine | None, str, str] = (None, "", "")
        """What is re-executed now: the line, the module's name and type where the training ran it."""
        self.nodes: list[Node] = []
        self.tensors: list[Tensor] = []
        """Every value, in the order met."""
        self.maker: list[int] = []
        """The node that made it; -1: it was there before."""
        self.read: set[int] = set()
        self.numbers: dict[int, Ref] = {}
        self._headers: dict[tuple[Any, ...], Ref] = {}
        self._storages: set[int] = set()
        self._kept: list[Tensor] = []
        self._traits: dict[Any, tuple[bool, bool]] = {}
        """Of ops: whether they draw random numbers, whether they write."""
        self._lines: dict[tuple[CodeType, int], SourceLine | None] = {}
        self.bytes = 0
        self.limit = MOST_BYTES
        self.late: Callable[[], bool] = lambda: False
        """Asked now and then: whether the step takes longer than it may."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if len(self.nodes) >= MOST_NODES:
            raise NotPossible(f"the step has more than {MOST_NODES} ops")
        if not len(self.nodes) % OFTEN and self.late():
            raise NotPossible("the step takes longer than experiments may")
        traits = self._traits.get(func)
        if traits is None:
            seeded = torch.Tag.nondeterministic_seeded in func.tags
            traits = self._traits[func] = seeded, func._schema.is_mutable or func._opname in _UNDECLARED
        random = None
        if traits[0] and not kwargs.get("generator"):
            random = Drawn()
        node = Node(func, self.taken(args), self.taken(kwargs), torch.is_grad_enabled(), random)
        if traits[1]:
            node.writes = [self.number(target) for target in _targets(func, args, kwargs)]
        out = func(*args, **kwargs)
        if func._opname in _QUIET:
            self.read.update(_refs((node.args, node.kwargs)))
            return out
        index = len(self.nodes)
        self.nodes.append(node)
        self._place(node, sys._getframe(1))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            node.outputs.append(self._made(tensor, index) if isinstance(tensor, Tensor) else None)
        return out

    def number(self, tensor: Tensor) -> Ref:
        """Of a tensor that an op takes."""
        known = self.numbers.get(id(tensor))
        if known is not None:
            return known
        if type(tensor) not in _ORDINARY or tensor.layout is not torch.strided or tensor.is_quantized:
            raise NotPossible(f"the step computes with a {type(tensor).__name__} of layout {tensor.layout}")
        if storage_of(tensor) in self._storages:  # another object for what an op has made, such as x.data
            same = self._headers.get(header(tensor))
            if same is None:
                raise NotPossible("the step uses memory in a way that its ops do not show")
            self.numbers[id(tensor)] = same
            self._kept.append(tensor)
            return same
        return self._new(tensor, -1)

    def _made(self, tensor: Tensor, index: int) -> Ref:
        known = self.numbers.get(id(tensor))
        if known is not None:
            return known
        self.bytes += tensor.numel() * tensor.element_size()
        if self.bytes > self.limit:
            raise NotPossible(f"the step makes more than {self.limit >> 20} MiB")
        found = self._new(tensor, index)
        self._storages.add(storage_of(tensor))
        self._headers[header(tensor)] = found
        return found

    def _new(self, tensor: Tensor, maker: int) -> Ref:
        found = self.numbers[id(tensor)] = Ref(len(self.tensors))
        self.tensors.append(tensor)
        self.maker.append(maker)
        return found

    def taken(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.number(value)
        if isinstance(value, tuple | list):
            return [self.taken(item) for item in value]
        if isinstance(value, dict):
            return {name: self.taken(item) for name, item in value.items()}
        return value

    def _line(self, frame: FrameType) -> SourceLine | None:
        key = (frame.f_code, frame.f_lineno)
        if key not in self._lines:
            self._lines[key] = frame_line(frame)
        return self._lines[key]

    def _place(self, node: Node, frame: FrameType | None) -> None:
        stack = self._state.stack
        entry = stack[-1] if stack else None
        found: FrameType | None = None
        outside = False
        while frame is not None:
            if frame.f_code is self.boundary:
                outside = True
                break
            rank = owner_of(frame.f_code)
            if rank == 2:
                found = frame
                break
            if rank == 1 and found is None:
                found = frame
            frame = frame.f_back
        node.source = self._line(found) if found is not None else self.outside[0]
        if outside and found is not None and not is_user(found.f_code) and self.outside[0] is not None:
            node.source = self.outside[0]
        if entry is not None:
            node.module, node.type = entry.name, entry.type
        elif outside:
            node.module, node.type = self.outside[1:]


def _refs(value: Any) -> list[Ref]:
    if isinstance(value, Ref):
        return [value]
    if isinstance(value, tuple | list):
        return [ref for item in value for ref in _refs(item)]
    if isinstance(value, dict):
        return [ref for item in value.values() for ref in _refs(item)]
    return []


refs = _refs


class Reads(Looker):
    """Where Python code looks at the values of a tensor."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []

    def called(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[..., Any],
        frame: FrameType,
    ) -> Any:
        if getattr(func, "__name__", "") in _READS and args and isinstance(args[0], Tensor):
            with unseen():
                self.tensors.append(args[0])
        return run(*args, **kwargs)
