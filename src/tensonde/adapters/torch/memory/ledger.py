"""Notes when memory is taken and when it is given back: a dispatch mode that sees what every op makes.

Python knows a storage as long as C++ does, so a weak reference tells when it goes. What ops take for themselves while they run
(the workspace of a convolution) is not seen. Nothing here keeps a tensor alive.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tensonde.adapters.torch.tensors import dtype_name
from tensonde.model.memory import Use
from tensonde.model.moment import Phase
from tensonde.model.site import SourceLine
from tensonde.program.frames import frame_line, is_ours, owner_of

_sequence = torch._C._autograd._get_sequence_nr
_node: Callable[[], Any] = torch._C._current_autograd_node
_PLUMBING = ("_ops.py", "_tensor.py", "eval_frame.py", "_python_dispatch.py")
BEFORE = "before"
"""The op of memory that was there when the ledger was opened."""


@dataclass(frozen=True, slots=True)
class Place:
    """Who asked for memory. `again`: a forward pass that runs a second time, inside the backward pass."""

    module: str = ""
    type: str = ""
    line: SourceLine | None = None
    again: bool = False


Key = tuple[str, str, str, str, int]
"""The same allocation in another run of the step: module, op, line, phase, and which of those it is."""


@dataclass(slots=True)
class Held:
    """One piece of memory, from its birth to its death: indices of the log."""

    bytes: int
    device: str
    shape: tuple[int, ...]
    dtype: str
    op: str
    place: Place
    phase: Phase
    step: int
    key: Key
    born: int
    derived: bool = False
    """Computed from parameters."""
    use: Use | None = None
    """What it turned out to be: a parameter, a gradient, the state of an optimizer."""
    died: int | None = None


class Ledger(TorchDispatchMode):  # type: ignore[misc]
    """Lives in the training thread and those in which autograd runs its backward pass, which hold the GIL."""

    def __init__(self, name_of: Callable[[nn.Module], tuple[str, str]], boundary: CodeType | None = None) -> None:
        """`boundary`: frames from this code on are not the user's line, `outside` is (see `Tracer`)."""
        super().__init__()
        self.held: list[Held] = []
        self.log: list[int] = []
        """Numbers of `held`, in order: n where it is born, ~n where it dies."""
        self.step = 0
        self.phase: Callable[[], Phase] = lambda: Phase.FORWARD
        self.open = True
        self.failed: Exception | None = None
        self.outside: Place | None = None
        self._boundary = boundary
        self._name_of = name_of
        self._alive: dict[int, tuple[int, Any]] = {}
        """By the storage: its number, and the weak reference."""
        self._forward: dict[int, Place] = {}
        """By autograd's number of the node that the op hangs on its output."""
        self._counts: Counter[tuple[str, str, str, str]] = Counter()
        self._lines: dict[tuple[CodeType, int], SourceLine | None] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        sequence = _sequence() - 1
        out = func(*args, **kwargs)
        if self.open and self.failed is None:
            try:
                frame = sys._getframe(1)
                if self._boundary is not None or not is_ours(_innermost(frame).f_code):
                    self._note(func._opname, args, kwargs, out, frame, sequence)
            except Exception as problem:
                self.failed = problem
        return out

    def begin_step(self, step: int) -> None:
        self.step = step
        self._counts.clear()
        self._forward.clear()

    def number(self, tensor: Tensor) -> int | None:
        """Of the memory of a tensor, where it is known."""
        found = self._alive.get(tensor.untyped_storage()._cdata) if _plain(tensor) else None
        return found[0] if found else None

    def meet(self, tensor: Tensor) -> int | None:
        """Memory that is there. Where it was not known, it was there when the ledger was opened, or C++ made it."""
        known = self.number(tensor)
        if known is not None or not _plain(tensor):
            return known
        return self._born(tensor, BEFORE, Place(), False)

    def living(self) -> list[tuple[int, int]]:
        """Memory that is in use: its identity (as of `storage_of`), and its number."""
        return [(identity, number) for identity, (number, _) in self._alive.items()]

    def is_use(self, tensors: list[Tensor], use: Use) -> None:
        """This is what these turned out to be."""
        for tensor in tensors:
            number = self.meet(tensor)
            if number is not None:
                self.held[number].use = use

    # -- one op ----------------------------------------------------------------------------------

    def _note(self, op: str, args: Any, kwargs: Any, out: Any, frame: FrameType, sequence: int) -> None:
        given = [number for tensor in _tensors((args, kwargs)) if (number := self._given(tensor)) is not None]
        place: Place | None = None
        derived = any(self.held[number].derived for number in given)
        for tensor in _tensors(out):
            if self.number(tensor) is not None or not _plain(tensor):
                continue
            place = place or self._place(frame)
            self._born(tensor, op, place, derived)
        if derived and self.phase() is Phase.FORWARD:
            self._forward[sequence] = place or self._place(frame)

    def _given(self, tensor: Tensor) -> int | None:
        number = self.meet(tensor)
        if number is not None and isinstance(tensor, nn.Parameter):
            self.held[number].derived = True
            self.held[number].use = "parameters"
        return number

    def _born(self, tensor: Tensor, op: str, place: Place, derived: bool) -> int:
        storage = tensor.untyped_storage()
        phase = self.phase()
        name = (place.module, op, str(place.line), phase.name)
        key = (*name, self._counts[name])
        self._counts[name] += 1
        number = len(self.held)
        self.held.append(
            Held(
                storage.nbytes(), str(tensor.device), tuple(tensor.shape), dtype_name(tensor), op, place, phase,
                self.step, key, len(self.log), derived,
            )
        )  # fmt: skip
        identity = storage._cdata
        self._alive[identity] = number, weakref.ref(storage, lambda _: self._dies(identity, number))
        self.log.append(number)
        return number

    def _dies(self, identity: int, number: int) -> None:
        if not self.open:
            return
        if self._alive.get(identity, (None,))[0] == number:
            del self._alive[identity]
        self.held[number].died = len(self.log)
        self.log.append(~number)

    # -- who asked -------------------------------------------------------------------------------

    def _place(self, frame: FrameType | None) -> Place:
        """The innermost module that runs and the innermost line of the user's. In a backward pass: those of the forward op."""
        backward = self.phase() is Phase.BACKWARD
        module: nn.Module | None = None
        user: FrameType | None = None
        library: FrameType | None = None
        outside = False
        while frame is not None and (module is None or user is None):
            code = frame.f_code
            if code is self._boundary or (backward and code.co_name == "_engine_run_backward"):
                outside = True
                break
            rank = owner_of(code)
            if rank == 2 and user is None:
                user = frame
            elif rank == 1 and library is None:
                library = frame
            elif module is None and code.co_name == "_call_impl":
                found = frame.f_locals.get("self")
                module = found if isinstance(found, nn.Module) else None
            frame = frame.f_back
        line = self._line(user or library)
        if backward and module is None:
            node = _node()
            known = self._forward.get(node._sequence_nr()) if node is not None else None
            return known or Place("", "", line)
        if outside and self.outside is not None and not backward:
            line = line if user is not None else self.outside.line
            if module is None:
                return Place(self.outside.module, self.outside.type, line)
        name, kind = self._name_of(module) if module is not None else ("", "")
        return Place(name, kind, line, backward)

    def _line(self, frame: FrameType | None) -> SourceLine | None:
        if frame is None:
            return None
        key = (frame.f_code, frame.f_lineno)
        if key not in self._lines:
            self._lines[key] = frame_line(frame)
        return self._lines[key]


def _tensors(value: Any) -> Iterator[Tensor]:
    """All of them: an optimizer hands over thousands in one list."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


def _plain(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.device.type != "meta" and torch._C._has_storage(tensor)


def _innermost(frame: FrameType) -> FrameType:
    """Past torch's own way from a call to its ops."""
    while frame.f_back is not None and frame.f_code.co_filename.endswith(_PLUMBING):
        frame = frame.f_back
    return frame
