"""Takes down every op of a forward pass while it is run again, so that it can be computed a third time.

MindSpore's dispatch mode shows ops, each with a function that may be called again later. Two kinds it does not show: indexing, and `concat`;
they are replaced meanwhile. Tensors are known by their memory, since an op is shown other objects than the program holds. Before a view goes into
an op, MindSpore copies it; so a view is given memory of its own here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import mindspore
from mindspore import Tensor
from mindspore.ops import Primitive
from mindspore.ops.auto_generate import pyboost_inner_prim
from mindspore.ops.primitive import _run_op

from tensonde.adapters.mindspore.experiments.names import index_name, name_of
from tensonde.adapters.mindspore.run.naming import parameters_in
from tensonde.adapters.mindspore.tensors import bytes_of, is_parameter, is_tensor, tensors_in
from tensonde.adapters.mindspore.tracing.dispatch import AVAILABLE
from tensonde.adapters.mindspore.tracing.names import IGNORED, draws
from tensonde.adapters.mindspore.tracing.tracer import Key, key_of
from tensonde.experiments.step import NotPossible
from tensonde.model.site import SourceLine
from tensonde.program.frames import frame_line, user_frame

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.entry import Entry
    from tensonde.adapters.mindspore.run.pynative import PyNative

MOST_NODES = 20_000
MOST_BYTES = 1 << 29
"""Of all that a pass makes."""
OFTEN = 32
"""Ops after which the time is looked at."""
_NOTHING = IGNORED | {"make_range", "sequence_len", "tuple_getitem"}
_WRITES = ("Assign", "Inplace", "ScatterAdd", "ScatterUpdate", "Apply")
_READS = ("asnumpy", "item", "tolist", "__bool__", "__float__", "__int__", "__index__")
_GROUPS = {"nll_loss": "nll_loss_forward", "_nll_loss": "nll_loss_forward"}
"""Functions of the library that count as one op, with what they are given first."""
_Mode: Any = mindspore.MsDispatchMode if AVAILABLE else object


class Ref(int):
    """Stands for a value in the arguments of a node."""


class Node:
    __slots__ = ("args", "frame", "func", "module", "name", "outputs", "source", "type", "wanted")

    def __init__(self, name: str, func: Callable[..., Any], args: Any) -> None:
        self.name, self.func, self.args = name, func, args
        self.outputs: list[Ref | None] = []
        self.source: SourceLine | None = None
        self.module = self.type = ""
        self.frame: FrameType | None = None
        """The function of the library that it is a part of, where that counts as one op."""
        self.wanted: list[Ref] = []
        """What that function was given, in its order."""


class Recorder(_Mode):  # type: ignore[misc]
    """Holds what the pass makes as long as it lives itself."""

    def __init__(self, training: PyNative, late: Callable[[], bool]) -> None:
        super().__init__()
        self._training, self._late = training, late
        self.nodes: list[Node] = []
        self.tensors: list[Any] = []
        """Every value, in the order met."""
        self.maker: list[int] = []
        """The node that made it; -1: it was there before."""
        self.numbers: dict[Key, Ref] = {}
        self.keys: list[Key] = []
        """Of every value, as the pass had it."""
        self.parameters: set[int] = set()
        """Values that were shown as parameters."""
        self.handed: set[int] = set()
        """Values that models were given."""
        self.read: set[int] = set()
        self.left_out = False
        """Dropout lets everything pass."""
        self._names = {key_of(p): name for name, p in training.parameters.live()}
        self._busy = False
        self._kept: list[Any] = []
        """Tensors whose memory must not become another's."""
        self._lines: dict[tuple[CodeType, int], SourceLine | None] = {}
        self._bytes = 0

    # -- the pass that is run again --------------------------------------------------------------

    def begin(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def entering(self, entry: Entry, cell: Any, args: Any, kwargs: Any) -> None:
        if not self._training.stack and next(iter(parameters_in(cell)), None) is not None:
            self.handed |= {int(self.number(tensor)) for tensor in tensors_in((args, kwargs))}

    def left(self, entry: Entry, cell: Any, args: Any, kwargs: Any, out: Any) -> None:
        pass

    @contextmanager
    def recording(self) -> Iterator[None]:
        concat = pyboost_inner_prim._PyboostConcatPrim
        replaced = [
            (Tensor, "__getitem__", self._getitem(Tensor.__getitem__)),
            (Tensor, "__setitem__", self._setitem(Tensor.__setitem__)),
            (concat, "__call__", self._concat(concat.__call__)),
            *((Tensor, name, self._reading(getattr(Tensor, name))) for name in _READS if hasattr(Tensor, name)),
        ]
        before = [(owner, name, owner.__dict__.get(name)) for owner, name, _ in replaced]
        depth = mindspore._c_expression._DispatchGuardStack.depth
        outside = depth()
        try:
            with self:
                for owner, name, replacement in replaced:
                    setattr(owner, name, replacement)
                yield
        finally:
            for owner, name, original in before:
                if original is None:  # its base class has it
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)
            while depth() > outside:  # an op that failed may leave the mode there
                mindspore._c_expression._DispatchGuardStack.pop()

    # -- ops -------------------------------------------------------------------------------------

    def __ms_dispatch__(self, func: Any, args: Any, kwargs: Any = None) -> Any:
        name = func.name
        if self._busy or name in _NOTHING or kwargs:
            return func(*args, **(kwargs or {}))
        if name.startswith(_WRITES) or "GetNext" in name:
            raise NotPossible(f"the step writes to what it was given, or takes data from a queue ({name})")
        given = [self.number(tensor) for tensor in tensors_in(args)]
        if name.startswith("Dropout") and given:
            self.left_out = True
            mine = tensors_in(args)[:1]
            return self._ran("native_dropout", _passed, mine, self._quietly(_passed, *mine), sys._getframe(1))
        if draws(name):
            raise NotPossible(f"the step draws random numbers, which MindSpore cannot draw a second time ({name})")
        weights = [self.maker[ref] < 0 and is_weight(self, ref) for ref in given]
        return self._ran(name_of(name, weights), _again(func, args), args, func(*args), sys._getframe(1))

    def _ran(self, name: str, func: Callable[..., Any], args: Any, out: Any, frame: FrameType) -> Any:
        if not tensors_in(out):
            self.read.update(int(self.number(tensor)) for tensor in tensors_in(args))
            return out
        if len(self.nodes) >= MOST_NODES:
            raise NotPossible(f"the step has more than {MOST_NODES} ops")
        if not len(self.nodes) % OFTEN and self._late():
            raise NotPossible("the step takes longer than experiments may")
        node = Node(name, func, self.taken(args))
        self._place(node, frame)
        index = len(self.nodes)
        self.nodes.append(node)
        if isinstance(out, tuple | list):
            made = [self._made(one, index) if is_tensor(one) else (one, None) for one in out]
            node.outputs = [ref for _, ref in made]
            return type(out)(one for one, _ in made)
        out, ref = self._made(out, index)
        node.outputs = [ref]
        return out

    def number(self, tensor: Any) -> Ref:
        """Of a tensor that an op takes."""
        known = self.numbers.get(key := key_of(tensor))
        return known if known is not None else self._new(key, tensor, -1)

    def _made(self, tensor: Any, index: int) -> tuple[Any, Ref]:
        self._bytes += bytes_of(tensor)
        if self._bytes > MOST_BYTES:
            raise NotPossible(f"the step makes more than {MOST_BYTES >> 20} MiB")
        self._busy = True
        try:
            tensor = copy_of(tensor)  # it may be a view
        finally:
            self._busy = False
        return tensor, self._new(key_of(tensor), tensor, index)

    def _new(self, key: Key, tensor: Any, maker: int) -> Ref:
        """What was given is copied: a parameter, or what an op was shown of it, belongs to the training's own derivatives, and MindSpore
        crashes where another one meets it. The tensor is kept as well, so that its memory does not become another's."""
        found = self.numbers[key] = Ref(len(self.tensors))
        if maker < 0:
            self._kept.append(tensor)
            self.parameters |= {int(found)} if is_parameter(tensor) else set()
            tensor = self._quietly(copy_of, tensor)
        self.tensors.append(tensor)
        self.keys.append(key)
        self.maker.append(maker)
        return found

    def taken(self, value: Any) -> Any:
        if is_tensor(value):
            return self.number(value)
        if isinstance(value, tuple | list):
            return type(value)(self.taken(item) for item in value)
        return value

    def name(self, ref: int) -> str | None:
        """Of a parameter."""
        return self._names.get(self.keys[ref])

    def _place(self, node: Node, frame: FrameType) -> None:
        stack = self._training.stack
        if stack:
            node.module, node.type = stack[-1].name, stack[-1].type
        caller = user_frame(frame)
        if caller is not None:
            key = (caller.f_code, caller.f_lineno)
            if key not in self._lines:
                self._lines[key] = frame_line(caller)
            node.source = self._lines[key]
        walk: FrameType | None = frame
        while walk is not None and walk is not caller:
            if walk.f_code.co_name in _GROUPS and "mindspore" in walk.f_code.co_filename:
                node.frame = walk
                names = walk.f_code.co_varnames[:2]
                known = [walk.f_locals.get(name) for name in names]
                node.wanted = [self.numbers[key_of(t)] for t in known if is_tensor(t) and key_of(t) in self.numbers]
            walk = walk.f_back

    # -- what the mode does not show -------------------------------------------------------------

    def _getitem(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def getitem(tensor: Any, index: Any) -> Any:
            if self._busy:
                return original(tensor, index)
            out = self._quietly(original, tensor, index)
            return self._ran(index_name(index, is_tensor), original, (tensor, index), out, sys._getframe(1))

        return getitem

    def _setitem(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def put(tensor: Any, index: Any, value: Any) -> Any:
            changed = tensor.copy()
            original(changed, index, value)
            return changed

        def setitem(tensor: Any, index: Any, value: Any) -> Any:
            if self._busy:
                return original(tensor, index, value)
            node = Node("index_put", put, self.taken((tensor, index, value)))
            self._place(node, sys._getframe(1))
            out = self._quietly(original, tensor, index, value)
            self.nodes.append(node)
            held = self._quietly(copy_of, tensor)
            self._kept.append(tensor)
            node.outputs = [self._new(key_of(tensor), held, len(self.nodes) - 1)]
            return out

        return setitem

    def _concat(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def concat(primitive: Any, tensors: Any, *rest: Any) -> Any:
            if self._busy:
                return original(primitive, tensors, *rest)
            out = self._quietly(original, primitive, tensors, *rest)
            return self._ran("cat", original, (primitive, tuple(tensors), *rest), out, sys._getframe(1))

        return concat

    def _reading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def reading(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._busy:
                return original(tensor, *args, **kwargs)
            known = self.numbers.get(key_of(tensor))
            if known is not None:
                self.read.add(int(known))
            out = self._quietly(original, tensor, *args, **kwargs)
            # What is made of it is no part of the pass: it must not lie in the same memory.
            return out.copy() if original.__name__ == "asnumpy" else out

        return reading

    def _quietly(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._busy = True
        try:
            return call(*args, **kwargs)
        finally:
            self._busy = False


def _again(func: Any, args: Any) -> Callable[..., Any]:
    """What runs an op later. What the mode gives for a primitive crashes MindSpore inside of a derivative; the framework's own way does not."""
    found: Callable[..., Any] = _run_op if len(args) == 3 and isinstance(args[0], Primitive) else func
    return found


def is_weight(recorder: Recorder, ref: int) -> bool:
    return recorder.name(ref) is not None or ref in recorder.parameters


def copy_of(tensor: Any) -> Any:
    if tensor.dtype == mindspore.bfloat16:
        raise NotPossible("the step computes in bfloat16, which numpy does not know")
    return Tensor(tensor.asnumpy().copy(), dtype=tensor.dtype)


def _passed(tensor: Any, *_: Any) -> tuple[Any, Any]:
    """Dropout that lets everything pass."""
    return tensor * 1, tensor * 0 + 1


def refs(value: Any) -> list[Ref]:
    if isinstance(value, Ref):
        return [value]
    if isinstance(value, tuple | list):
        return [ref for item in value for ref in refs(item)]
    return []


def filled(value: Any, env: dict[int, Any]) -> Any:
    if isinstance(value, Ref):
        return env[int(value)]
    if isinstance(value, tuple | list):
        return type(value)(filled(item, env) for item in value)
    return value
