"""Inputs of a compiled graph that the program writes to between its forward and its backward pass.

The backward graph is given such an input as it is by then, so the gradient is that of another batch. In eager mode autograd compares
version counters and raises; compiled code does not always. So the counters are compared here, in the first calls of each region.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tensonde.adapters.torch.compiled.watching import base
from tensonde.adapters.torch.seams.vanishing import Ref
from tensonde.program.frames import foreign_frames, is_user
from tensonde.program.habits import writes_to
from tensonde.program.lines import line_at

if TYPE_CHECKING:
    from tensonde.adapters.torch.compiled.watched import CompiledGraph

CALLS = 16


class Overwritten:
    """Of one region."""

    def __init__(self) -> None:
        self._calls = 0
        self._kept: list[int] | None = None
        self._seen: dict[int, tuple[weakref.ref[Tensor], set[int]]] = {}
        """By address: inputs that are kept for the backward pass, and the versions that they had."""

    def forward(self, graph: CompiledGraph, args: list[Any]) -> None:
        self._calls += 1
        if self._calls > CALLS:
            return
        if self._kept is None:
            kept = {base(graph.nodes[name]).name for name in graph.outputs if name is not None}
            self._kept = [k for k, name in enumerate(graph.placeholders) if name in kept and k not in graph.written]
        for k in self._kept:
            arg = args[k]
            if isinstance(arg, Tensor) and not arg.is_inference() and arg.layout is torch.strided and arg.numel():
                ref, versions = self._seen.get(arg.data_ptr(), (None, set()))
                if ref is None or ref() is not arg:
                    versions = set()
                versions.add(arg._version)
                self._seen[arg.data_ptr()] = Ref(arg), versions

    def backward(self, args: list[Any]) -> dict[str, Any] | None:
        """What was written to, and where, as far as that is known; told once."""
        if self._calls > CALLS or not self._seen:
            return None
        for arg in args:
            if isinstance(arg, Tensor) and arg.layout is torch.strided and arg.data_ptr() in self._seen:
                ref, versions = self._seen[arg.data_ptr()]
                tensor = ref()
                if tensor is not None and tensor._version not in versions:
                    self._calls = CALLS
                    self._seen.clear()
                    return {"shape": list(tensor.shape), **_written(tensor)}
        return None


def _written(tensor: Tensor) -> dict[str, Any]:
    """The variable of the program that is this tensor, and the last line before the backward pass that writes to it."""
    for frame in foreign_frames(sys._getframe(1)):
        if not is_user(frame.f_code):
            continue
        held = [
            name
            for name, value in list(frame.f_locals.items())
            if isinstance(value, Tensor) and value.shape == tensor.shape and value.data_ptr() == tensor.data_ptr()
        ]
        path = frame.f_code.co_filename
        for name in held:
            lines = [n for n in writes_to(path, name) if frame.f_code.co_firstlineno <= n <= frame.f_lineno]
            if lines:
                return {"variable": name, "place": line_at(path, max(lines))}
        if held:
            return {"variable": held[0], "place": line_at(path, frame.f_lineno)}
    return {"variable": None, "place": None}
