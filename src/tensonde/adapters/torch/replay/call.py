"""One call on the tape: what was called, with what, under which modes, and where in the user's code."""

from __future__ import annotations

from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from tensonde.adapters.torch.randomness import device_states
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.adapters.torch.tracing.tracer import module_of
from tensonde.model.site import SourceLine
from tensonde.program.frames import owner_of
from tensonde.program.lines import source_line

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.state import RunState

Place = tuple[SourceLine | None, str, str]
"""The user's line, and the name and type of the module whose method it is in ("" where it is in none)."""

_grad_enabled = torch.is_grad_enabled
_any_autocast = torch._C._is_any_autocast_enabled


class Slot(int):
    """Stands for a tensor that the tape can make again: the number of the value."""


def given_by(out: Any) -> list[Tensor]:
    """The tensors in what a call gave, those that a distribution holds among them: a policy gives one, and its ops go on from there."""
    return tensors_in(_opened(out, 3))


def _opened(value: Any, depth: int) -> Any:
    if isinstance(value, Distribution):
        return [_opened(part, depth - 1) for part in vars(value).values()] if depth else []
    if type(value) in (tuple, list) and depth:
        return [_opened(part, depth - 1) for part in value]
    return value


class TapedCall:
    """`call` is a module or a function. `outputs` are the slots of what it gave, in the order of `given_by`.

    `code` and `instruction` tell the user's line, which is worked out only when it is wanted.
    """

    __slots__ = (
        "args",
        "autocast",
        "buffers",
        "call",
        "code",
        "device_random",
        "grad",
        "instruction",
        "kwargs",
        "outputs",
        "owner",
        "place",
        "python",
        "random",
    )

    def __init__(self, call: Any, args: Any, kwargs: Any, random: Tensor | None, frame: FrameType | None) -> None:
        self.call = call
        self.args = args
        self.kwargs = kwargs
        self.random = random
        self.device_random = device_states() if random is not None else []
        self.python: Any = None
        """The state of Python's own generator, where the module's code draws from it."""
        self.grad = _grad_enabled()
        self.outputs: list[Slot] | tuple[Slot, ...] = ()
        self.buffers: tuple[tuple[Tensor, Tensor], ...] = ()
        self.autocast = _autocast() if _any_autocast() else ()
        self.code: CodeType | None = None
        self.instruction = -1
        self.owner: nn.Module | None = None
        self.place: Place | None = None
        fallback: FrameType | None = None
        while frame is not None:
            rank = owner_of(frame.f_code)
            if rank == 2:
                break
            if rank == 1 and fallback is None:
                fallback = frame
            frame = frame.f_back
        frame = frame or fallback
        if frame is not None:
            code = self.code = frame.f_code
            self.instruction = frame.f_lasti
            method = _methods.get(code)
            if method is None:
                method = _methods[code] = code.co_varnames[:1] == ("self",)
            if method:
                self.owner = module_of(frame)

    @classmethod
    def again(
        cls, call: Any, args: Any, kwargs: Any, *, random: Tensor | None, grad: bool, outputs: list[Slot],
        autocast: tuple[tuple[str, torch.dtype], ...], buffers: tuple[tuple[Tensor, Tensor], ...], place: Place,
    ) -> TapedCall:  # fmt: skip
        """A call that was on the tape of another process."""
        entry = cls(call, args, kwargs, random, None)
        entry.grad, entry.outputs, entry.autocast, entry.buffers = grad, outputs, autocast, buffers
        entry.place = place
        return entry

    def where(self, state: RunState) -> Place:
        """Where the training ran it."""
        if self.place is None:
            source = None
            if self.code is not None:
                source = source_line(self.code.co_filename, self.line)
            owner = self.owner
            known = state.roster.entries.get(id(owner)) if owner is not None else None
            self.place = (source, known.name if known else "", type(owner).__name__ if owner is not None else "")
        return self.place

    @property
    def line(self) -> int:
        if self.code is not None:
            for start, end, line in self.code.co_lines():
                if start <= self.instruction < end and line is not None:
                    return line
        return 0


_methods: dict[CodeType, bool] = {}


def _autocast() -> tuple[tuple[str, torch.dtype], ...]:
    return tuple((device, torch.get_autocast_dtype(device)) for device in autocast_devices())


def autocast_devices() -> list[str]:
    """Types of devices that autocast is on for."""
    found = torch.accelerator.current_accelerator()
    types = ("cpu",) if found is None else ("cpu", found.type)
    return [device for device in types if torch.is_autocast_enabled(device)]
