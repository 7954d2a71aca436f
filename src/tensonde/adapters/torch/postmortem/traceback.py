"""A traceback with the values that its frames still hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from torch import Tensor, nn

from tensonde.adapters.torch.memory.history import History
from tensonde.adapters.torch.postmortem.latest import LatestCall
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.tensors import dtype_name
from tensonde.model.trace import OpRecord
from tensonde.program.frames import is_ours
from tensonde.program.values import FrameState

_INTERNAL = re.compile(r"torch/(_\w+|library)(\.py|/)")
"""Python that implements ops: the op is what called it. (`_tensor.py` forwards methods.)"""


@dataclass(frozen=True, slots=True)
class Call:
    """A module that was running, with what it was called with."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str


FailedOp = Callable[[], tuple[OpRecord, int] | None]
"""Runs the last steps again, waiting for every op: the op of a device that fails, and its step."""


class Failure:
    """Made in the exception hook, dropped before it ends: it keeps the frames' values alive."""

    def __init__(
        self,
        problem: BaseException,
        trace: TracebackType | None,
        state: RunState,
        latest: LatestCall,
        failed_op: FailedOp = lambda: None,
        memory: History | None = None,
    ) -> None:
        self.problem = problem
        self.state = state
        self.latest = latest
        self.failed_op = failed_op
        self.memory = memory or History()
        self.message = str(problem)
        self.places = self.places_of(trace)
        while len(self.places) > 1 and _INTERNAL.search(self.places[-1].path):
            self.places.pop()
        self.user = [place for place in self.places if place.is_user]
        self.calls = [call for place in self.places if (call := self._call(place)) is not None]

    @staticmethod
    def places_of(trace: TracebackType | None) -> list[FrameState]:
        return [place for place in _places(trace) if not is_ours(place.frame.f_code)]

    def _call(self, place: FrameState) -> Call | None:
        held = place.frame.f_locals
        module = held.get("self")
        if place.function != "_call_impl" or not isinstance(module, nn.Module):
            return None
        return Call(module, tuple(held.get("args") or ()), dict(held.get("kwargs") or {}), self.name_of(module))

    def name_of(self, module: nn.Module) -> str:
        entry = self.state.roster.entries.get(id(module))
        if entry is not None:
            return entry.name
        for root in self.state.roster.roots.values():
            for path, found in root.named_modules():
                if found is module:
                    return str(path)
        return type(module).__name__

    def named(self, module: nn.Module) -> tuple[str, str]:
        """Its name and its class."""
        return self.name_of(module), type(module).__name__

    @property
    def last(self) -> FrameState | None:
        return self.places[-1] if self.places else None

    def inside(self, part: str) -> bool:
        """Some frame's file has this in its path."""
        return any(part in place.path for place in self.places)


def _places(trace: TracebackType | None) -> Iterator[FrameState]:
    while trace is not None:
        yield FrameState(trace.tb_frame, trace.tb_lineno, trace.tb_lasti)
        trace = trace.tb_next


def tensor_fact(tensor: Tensor) -> dict[str, Any]:
    fact: dict[str, Any] = {"shape": list(tensor.shape), "dtype": dtype_name(tensor), "device": str(tensor.device)}
    if tensor.requires_grad:
        fact["requires_grad"] = True
    return fact
