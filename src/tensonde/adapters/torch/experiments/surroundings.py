"""What the program around a step tells of its values: the variables that hold them, the lines that made them, samples, idle fields."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from tensonde.adapters.torch.experiments.recorder import Recorder
from tensonde.adapters.torch.observers.loaders import LOADERS
from tensonde.adapters.torch.observers.making import made_line, shares
from tensonde.adapters.torch.tensors import is_plain
from tensonde.experiments.step import Op, Value
from tensonde.model.site import SourceLine
from tensonde.program.classes import item_line, returned_line
from tensonde.program.drawn import is_drawn
from tensonde.program.frames import is_user, is_user_file
from tensonde.program.lines import from_json, source_line
from tensonde.program.origin import binding_before, variable_line
from tensonde.program.parting import Ways
from tensonde.program.syntax import bindings, is_name, reads, scope_at, statements
from tensonde.program.values import evaluate

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.state import RunState

Kind = Literal["float", "int", "bool", "other"]
Origin = Literal["made", "parameter", "buffer", "given"]
MOST_HELD = 256
MOST_ELEMENTS = 1 << 23
"""Variables that are looked at for tables, and elements of one."""
MOST_LINES = 8
"""Values whose making is looked up in the source."""
INSIDE = 2
"""Functions inside of that which hands a value out, each of which may be where it is made."""
_ROW_BY_ROW = frozenset(("slice", "_to_copy", "clone", "alias", "flip", "div", "mul", "sub", "add", "unsqueeze"))
"""Ops after which a row of a batch is still that row; where one of them is told to work along the rows, their number changes, or all of them turn round together."""


class Surroundings:
    """`handed`: ids of the tensors that models were given, `roots` the models. `again` gives what a tensor of the program's is in the step that was run
    again: what the step makes, it has made anew."""

    def __init__(
        self,
        state: RunState,
        recorder: Recorder,
        handed: set[int],
        roots: list[nn.Module],
        frame: FrameType,
        again: Callable[[Tensor], Tensor | None] = lambda tensor: None,
    ) -> None:
        self._state, self._recorder, self._handed = state, recorder, handed
        self._buffers = {id(buffer) for root in roots for buffer in root.buffers()}
        self.frames = _user_frames(frame)
        self._variables = [
            (name, value, frame)
            for frame in self.frames
            for name, value in list(frame.f_locals.items())
            if issubclass(type(value), Tensor)
        ]
        self._held = {
            id(made): k for k, (_, value, _) in enumerate(self._variables) if (made := again(value)) is not None
        }
        self.ways = Ways()

    def values(self, read: set[int]) -> list[Value]:
        found, looked_up = [], 0
        for ref, tensor in enumerate(self._recorder.tensors):
            maker = self._recorder.maker[ref]
            name, made, bound, drawn = "", None, None, False
            origin: Origin = "made"
            if maker < 0:
                known = self._state.parameters.names.get(id(tensor))
                if isinstance(tensor, nn.Parameter) or (tensor.requires_grad and tensor.is_leaf):
                    origin, name = "parameter", known[0] if known else ""
                else:
                    origin = "buffer" if id(tensor) in self._buffers else "given"
            handed = id(tensor) in self._handed
            if origin == "given" or handed or (origin == "made" and id(tensor) in self._held):
                name, bound, frame = self._variable(tensor)
                if frame is not None:
                    self.ways.note(ref, frame.f_code.co_filename, frame.f_lineno, name)
                drawn = frame is not None and is_drawn(frame.f_code.co_filename, name, frame.f_lineno)
                if looked_up < MOST_LINES and self.frames and name:
                    looked_up += 1
                    held = self._held.get(id(tensor))
                    theirs = tensor if held is None else self._variables[held][1]
                    made = from_json(made_line(theirs, self.frames[0])) or from_json(_handed_out(name, frame))
            found.append(
                Value(
                    ref,
                    tuple(tensor.shape),
                    _kind(tensor),
                    origin,
                    name,
                    maker if maker >= 0 else None,
                    handed,
                    ref in read,
                    made,
                    bound,
                    drawn,
                )
            )
        return found

    def _variable(self, tensor: Tensor) -> tuple[str, SourceLine | None, FrameType | None]:
        known = self._held.get(id(tensor))
        for name, value, frame in self._variables if known is None else [self._variables[known]]:
            if known is not None or value is tensor or (value.shape == tensor.shape and shares(value, tensor)):
                bound = binding_before(name, frame, frame.f_lineno, frame.f_lineno)
                return name, source_line(frame.f_code.co_filename, bound.line) if bound is not None else None, frame
        return "", None, None

    def loss_line(self, losses: list[Tensor]) -> SourceLine | None:
        """The line that gave the variable its value which holds the loss, in the outermost frame that has one."""
        found = None
        for name, value, frame in self._variables:
            if any(value is loss for loss in losses):
                bound = binding_before(name, frame, frame.f_lineno, frame.f_lineno)
                found = source_line(frame.f_code.co_filename, bound.line) if bound is not None else found
        return found

    def held(self) -> list[Tensor]:
        """Arrays and tensors of the program's variables, of its datasets, and of the objects whose methods run."""
        found: dict[int, Any] = {}
        waiting = [value for frame in self.frames for value in list(frame.f_locals.values())]
        for value in waiting[:MOST_HELD]:
            inner = value.dataset if issubclass(type(value), DataLoader) else value
            while type(inner) is Subset:
                inner = inner.dataset
            parts = [inner]
            if type(inner) is TensorDataset:
                parts = list(inner.tensors)
            elif not issubclass(type(inner), nn.Module) and is_user_made(inner):
                parts = list(vars(inner).values())
            found |= {id(part): part for part in parts if issubclass(type(part), Tensor | np.ndarray)}
        return [t for part in found.values() if (t := _table(part)) is not None]

    def batch(self, values: list[Value], ops: list[Op]) -> int:
        """How many samples, where it is certain that the first dimension holds them: a loader put so many together, or the
        program chose rows by an index."""
        handed = [v for v in values if v.into_model and v.shape and v.kind in ("float", "int")]
        sizes = {entry.get("batch_size") for entry in LOADERS.entries}
        for value in handed:
            if value.shape[0] in sizes or _rows_by_index(value, values, ops):
                return value.shape[0]
        return 0

    def idle(self, values: list[Value]) -> list[Value]:
        """Tensors that were unpacked together with others that the step uses, and that are read nowhere. Numbers of samples, each with its own, are for whoever wants to find them again."""
        numbers = self._recorder.numbers
        found = []
        for name, tensor, frame in self._variables:
            if id(tensor) in numbers or tensor.requires_grad or name.startswith("_") or not tensor.ndim:
                continue
            path, line = frame.f_code.co_filename, frame.f_lineno
            scope = scope_at(path, line)
            bound = binding_before(name, frame, line, line)
            if scope is None or bound is None or not bound.path or reads(scope, name):
                continue
            beside = [other for other in _unpacked(scope, bound.line) if other != name]
            used = [other for other in beside if id(frame.f_locals.get(other)) in numbers]
            once = len(bindings(scope, name)) == 1
            if len(used) >= 2 and len(used) == len(beside) and once and not _numbers_samples(tensor):
                found.append(Value(-1, tuple(tensor.shape), _kind(tensor), "given", name))
        return found


def _numbers_samples(tensor: Tensor) -> bool:
    """Whole numbers, none of which is there twice."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.ndim != 1 or len(tensor) < 2:
        return False
    return len(set(tensor.tolist())) == len(tensor)


def _handed_out(name: str, frame: FrameType | None) -> dict[str, Any] | None:
    """Of the target of a loop: the line of a dataset, or of a generator of the user's, that makes this part of what it hands out."""
    bound = binding_before(name, frame, frame.f_lineno, frame.f_lineno) if frame is not None else None
    if frame is None or bound is None or not bound.loop:
        return None
    node, path = bound.value, list(bound.path)
    while isinstance(node, ast.Call):
        line = returned_line(evaluate(node.func, frame), path, INSIDE)
        if line is not None:
            return line
        if not node.args:
            return None
        path = path[1:] if is_name(node.func, "enumerate") else path
        node = node.args[0]
    loader = evaluate(node, frame)
    if not path:
        return None
    if isinstance(loader, DataLoader):
        dataset, line = loader.dataset, returned_line(loader.collate_fn, path, INSIDE)
    elif isinstance(loader, Dataset):  # the loader is made where it is iterated
        dataset, line = loader, None
    else:
        return None
    held = dataset.tensors if isinstance(dataset, TensorDataset) else ()
    if line is None and path[0] < len(held):
        number = frame.f_lineno
        return variable_line(held[path[0]], frame, number) or variable_line(dataset, frame, number)
    return line if line is not None else item_line(type(dataset), path[0], Dataset)


def is_user_made(value: Any) -> bool:
    """An object of a class of the program's own."""
    module = sys.modules.get(type(value).__module__)
    file = getattr(module, "__file__", None)
    return file is not None and is_user_file(file) and isinstance(getattr(value, "__dict__", None), dict)


def _rows_by_index(value: Value, values: list[Value], ops: list[Op]) -> bool:
    """Each row was chosen by an index, or put beside the others; what was done to it since leaves rows where they are."""
    while value.op is not None:
        op = ops[value.op]
        if op.module:  # what a model has made: states one after the other are positions
            return False
        index = [values[n] for n in op.inputs if values[n].kind == "int" and len(values[n].shape) == 1]
        if op.name in ("index", "index_select") and index and index[0].shape[0] == value.shape[0]:
            return True
        if op.name == "stack" and {values[n].shape for n in op.inputs} == {value.shape[1:]}:
            return True  # one sample after the other
        if op.name not in _ROW_BY_ROW or values[op.inputs[0]].shape[:1] != value.shape[:1]:
            return False
        value = values[op.inputs[0]]
    return False


def _table(part: Any) -> Tensor | None:
    if isinstance(part, np.ndarray):
        if part.dtype.kind not in "fiub" or not part.flags.writeable:
            return None
        part = torch.from_numpy(part) if part.flags.c_contiguous else None
    if part is None or not is_plain(part) or part.requires_grad or not part.ndim or len(part) < 2:
        return None
    return part if part.numel() <= MOST_ELEMENTS else None


def _unpacked(scope: ast.AST, line: int) -> list[str]:
    for node in statements(scope):
        if node.lineno == line and isinstance(node, ast.Assign | ast.For):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            return [inner.id for inner in ast.walk(target) if isinstance(inner, ast.Name)]
    return []


def _kind(tensor: Tensor) -> Kind:
    if tensor.dtype is torch.bool:
        return "bool"
    if tensor.is_floating_point():
        return "float"
    return "int" if not tensor.is_complex() else "other"


def _user_frames(frame: FrameType | None) -> list[FrameType]:
    found = []
    while frame is not None:
        if is_user(frame.f_code):
            found.append(frame)
        frame = frame.f_back
    return found
