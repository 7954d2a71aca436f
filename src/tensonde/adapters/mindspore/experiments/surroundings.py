"""What the program around a pass tells of its values: the variables that hold them, the lines that bound them, samples."""

from __future__ import annotations

import inspect
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
from mindspore import nn

from tensonde.adapters.mindspore.experiments.graph import places
from tensonde.adapters.mindspore.experiments.recorder import Recorder
from tensonde.adapters.mindspore.observers.feeding import LOADERS
from tensonde.adapters.mindspore.tensors import is_parameter, is_tensor, shape_of, values_of
from tensonde.adapters.mindspore.tracing.tracer import Key, key_of
from tensonde.experiments.step import Array, Value
from tensonde.model.site import SourceLine
from tensonde.program.drawn import is_drawn
from tensonde.program.frames import user_frames
from tensonde.program.lines import source_line
from tensonde.program.origin import binding_before
from tensonde.program.parting import Ways

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative

MOST_HELD = 256
MOST_ELEMENTS = 1 << 23
"""Variables that are looked at for tables, and elements of one."""


class Surroundings:
    """`given`: the tensors that the program handed to the pass, by the numbers of those that took their place; `names`: what the pass calls them."""

    def __init__(
        self, training: PyNative, recorder: Recorder, given: dict[int, Any], names: dict[int, str], frame: FrameType
    ) -> None:
        self._training, self._recorder = training, recorder
        self._given, self._names = given, names
        self.frames = user_frames(frame)
        self.ways = Ways()
        self._variables = [
            (name, value, frame)
            for frame in self.frames
            for name, value in list(frame.f_locals.items())
            if is_tensor(value) and not is_parameter(value)
        ]

    def values(self, ops: list[int]) -> list[Value]:
        """`ops`: of each node, the op that it is part of."""
        buffers = self._buffers()
        found = []
        for ref, tensor in enumerate(self._recorder.tensors):
            maker, handed = self._recorder.maker[ref], ref in self._recorder.handed
            name, bound, drawn, origin = "", None, False, "made"
            if maker < 0:
                known = self._recorder.name(ref)
                if known is not None or ref in self._recorder.parameters:
                    origin, name = "parameter", known or ""
                origin = (
                    "buffer"
                    if self._recorder.keys[ref] in buffers
                    else "parameter"
                    if origin == "parameter"
                    else "given"
                )
            if origin == "given" or (handed and origin == "made"):
                name, bound, frame = self._variable(
                    key_of(self._given[ref]) if ref in self._given else self._recorder.keys[ref]
                )
                if frame is not None:
                    self.ways.note(ref, frame.f_code.co_filename, frame.f_lineno, name)
                    drawn = is_drawn(frame.f_code.co_filename, name, frame.f_lineno)
                name = name or self._names.get(ref, "")
            found.append(
                Value(
                    ref,
                    shape_of(tensor),
                    _kind(tensor),
                    origin,  # type: ignore[arg-type]
                    name,
                    ops[maker] if maker >= 0 else None,
                    handed,
                    ref in self._recorder.read,
                    None,
                    bound,
                    drawn,
                )
            )
        return found

    def _buffers(self) -> set[Any]:
        """Statistics that cells keep."""
        found = set()
        for reference, attribute in self._training.parameters.buffers.values():
            cell = reference()
            held = getattr(cell, attribute, None) if cell is not None else None
            if is_tensor(held):
                found.add(key_of(held))
        return found

    def _variable(self, key: Key) -> tuple[str, SourceLine | None, FrameType | None]:
        for name, value, frame in self._variables:
            if key_of(value) == key:
                bound = binding_before(name, frame, frame.f_lineno, frame.f_lineno)
                return name, source_line(frame.f_code.co_filename, bound.line) if bound is not None else None, frame
        return "", None, None

    def held(self) -> list[Array]:
        """Arrays and tensors of the program's variables."""
        found: dict[int, Array] = {}
        for frame in self.frames:
            for value in list(frame.f_locals.values())[:MOST_HELD]:
                array = values_of(value) if is_tensor(value) and not is_parameter(value) else value
                if isinstance(array, np.ndarray) and _is_table(array):
                    found[id(value)] = array
        return list(found.values())

    def batch(self, values: list[Value], array: Any) -> int:
        """How many samples, where it is certain that the first dimension holds them: a data set put so many together, or the rows are
        rows of an array of the program's."""
        handed = [v for v in values if v.into_model and v.shape and v.kind in ("float", "int")]
        sizes = {entry.get("batch_size") for entry in LOADERS.facts()}
        for value in handed:
            if value.shape[0] in sizes or any(places(table, array(value.number)) is not None for table in self.held()):
                return value.shape[0]
        return 0


def argument_names(fn: Any) -> list[str]:
    """What a function or cell calls its arguments."""
    try:
        return list(inspect.signature(fn.construct if isinstance(fn, nn.Cell) else fn).parameters)
    except (TypeError, ValueError):
        return []


def _is_table(array: Array) -> bool:
    return array.dtype.kind in "fiub" and array.ndim > 0 and len(array) >= 2 and array.size <= MOST_ELEMENTS


def _kind(tensor: Any) -> Any:
    name = str(tensor.dtype).lower()
    if "bool" in name:
        return "bool"
    if "float" in name:
        return "float"
    return "int" if "int" in name else "other"
