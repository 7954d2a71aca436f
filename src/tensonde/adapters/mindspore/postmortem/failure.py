"""The exception that ended the training, described by what its frames still hold, and with Tensonde's frames taken out."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np
from mindspore import nn

from tensonde.adapters.early import failed_early
from tensonde.adapters.mindspore.observers.origins import KNOWN
from tensonde.adapters.mindspore.observers.settings import RENAMED
from tensonde.adapters.mindspore.postmortem.columns import WRONG, columns, source_in
from tensonde.adapters.mindspore.postmortem.ranges import in_scope
from tensonde.adapters.mindspore.postmortem.stepping import optimizer_in, stepping
from tensonde.adapters.mindspore.run.naming import is_optimizer, own_parameters
from tensonde.adapters.mindspore.run.pynative import PyNative
from tensonde.adapters.mindspore.tensors import dtype_name, is_tensor, shape_of, tensors_in
from tensonde.adapters.mindspore.tracing.names import CELLS, function, primitive
from tensonde.model.site import SourceLine
from tensonde.program import queries
from tensonde.program.frames import is_ours, is_user_file
from tensonde.program.lines import line_at, source_line, to_json
from tensonde.program.origin import given_line
from tensonde.program.values import FrameState, evaluate, op_of, operands, plain

_SETTINGS = (
    "in_channels",
    "out_channels",
    "kernel_size",
    "num_features",
    "input_size",
    "hidden_size",
    "group",
    "reduction",
    "normalized_shape",
)
_LOOKED_UP = ("input", "target")
"""What a cell of the library is called with: a table's indices, or a loss's scores and labels."""
_MOST = 16
_IN_FILE = re.compile(r"^(# \d+ )?In file (.+?):(\d+)", re.MULTILINE)
"""With a number: a call on the way there, outermost first."""


class Call:
    """A cell that was running, with what it was called with."""

    def __init__(self, cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> None:
        self.cell, self.args, self.kwargs, self.name = cell, args, kwargs, name


class Failure:
    """Made in the exception hook, dropped before it ends: it keeps the frames' values alive."""

    def __init__(self, problem: BaseException, trace: TracebackType | None, training: PyNative) -> None:
        self.problem = problem
        self.training = training
        self.message = str(problem)
        self.places = places_of(trace)
        self.user = [place for place in self.places if place.is_user]
        self.calls = [call for place in self.places if (call := self._call(place)) is not None]
        self.compiled = _compiled_line(self.message)
        """The line that MindSpore could not compile: the frames end at the call of what it compiles."""

    def _call(self, place: FrameState) -> Call | None:
        held = place.frame.f_locals
        cell = held.get("self")
        if place.function != "__call__" or not isinstance(cell, nn.Cell) or is_optimizer(cell):
            return None
        return Call(cell, tuple(held.get("args") or ()), dict(held.get("kwargs") or {}), self.name_of(cell))

    def name_of(self, cell: Any) -> str:
        entry = self.training.roster.entries.get(id(cell))
        return entry.name if entry is not None else type(cell).__name__

    def inside(self, part: str) -> bool:
        return any(part in place.path for place in self.places)

    @property
    def last(self) -> FrameState | None:
        return self.places[-1] if self.places else None


def places_of(trace: TracebackType | None) -> list[FrameState]:
    found = []
    while trace is not None:
        if not is_ours(trace.tb_frame.f_code):
            found.append(FrameState(trace.tb_frame, trace.tb_lineno, trace.tb_lasti))
        trace = trace.tb_next
    return found


def describe(problem: BaseException, trace: TracebackType | None, training: PyNative) -> dict[str, Any]:
    """Facts for the event `exception`; plain JSON, which keeps nothing of the program alive."""
    failure = Failure(problem, trace, training)
    kind = class_of(failure)
    phase = {"backward op": "backward", "optimizer": "optimizer"}.get(kind, "forward")
    return {
        "type": type(problem).__name__,
        "message": _message(problem),
        "source": to_json(failure.compiled or (failure.user[-1].source if failure.user else None)),
        "module": failure.calls[-1].name if failure.calls else None,
        "step": training.step,
        "phase": phase,
        **({} if isinstance(problem, KeyboardInterrupt) else _facts(failure, kind)),
    }


def _compiled_line(message: str) -> SourceLine | None:
    """The line that MindSpore's compiler points at, else the innermost of the program in the stack that it writes under its message."""
    users = [(way, file, int(line)) for way, file, line in _IN_FILE.findall(message) if is_user_file(file)]
    pointed_at = [place for place in users if not place[0]]
    return source_line(*(pointed_at or users)[-1][1:]) if users else None


def _message(problem: BaseException) -> str:
    """Without the C++ stack, which MindSpore puts under a line of dashes."""
    text = re.split(r"\n-{8,}\n", str(problem))[0].strip()
    return text[:2000]


def _facts(failure: Failure, kind: str) -> dict[str, Any]:
    """Never fails as a whole: a part that cannot be had is named under `missing`."""
    fact: dict[str, Any] = {"class": kind}
    missing: dict[str, str] = {}

    def take(name: str, probe: Callable[[], Any]) -> None:
        try:
            found = probe()
        except Exception as problem:
            missing[name] = f"{type(problem).__name__}: {problem}"[:200]
            return
        if found:
            fact[name] = found

    take("op", lambda: failing_op(failure))
    if failure.compiled is None:
        take("inputs", lambda: _inputs(failure))
    take("modules", lambda: [_module(call, failure) for call in failure.calls[-12:]])
    take("frames", lambda: [_frame(place) for place in failure.user[-8:]])
    take("fed_by", lambda: fed_by(failure))
    if re.search(r"out of (range|bounds)|in the range|range \[", failure.message):
        take("range", lambda: _range(failure))
    take("optimizer_call", lambda: stepping(failure.places))
    if WRONG.search(failure.message):
        take("columns", lambda: columns(failure.message, [place.frame for place in reversed(failure.places)]))
    if missing:
        fact["missing"] = missing
    return fact


def _range(failure: Failure) -> dict[str, Any] | None:
    """Of the cell that runs, what it was given and has; else what the frames hold."""
    call = failure.calls[-1] if failure.calls else None
    if call is not None:
        given = dict(zip(_LOOKED_UP, call.args, strict=False)) | call.kwargs
        found = in_scope(given | dict(own_parameters(call.cell)))
        if found is not None:
            return found
    return next((found for place in reversed(failure.places) if (found := in_scope(place.frame.f_locals))), None)


def class_of(failure: Failure) -> str:
    if failure.inside("mindspore/dataset/"):
        return "data loading"
    if any(place.function == "grad" and place.path.endswith("api.py") for place in failure.places):
        return "backward op"
    if failure.inside("mindspore/nn/optim/") or failure.inside("mint/optim") or failure.inside("experimental/optim"):
        return "optimizer"
    if optimizer_in(failure.places) is not None:  # it is compiled: none of its own frames are there
        return "optimizer"
    last = failure.last
    if last is None:
        return "user code"
    if not last.is_user and failure.inside("mindspore/"):
        return "forward op"
    node = last.expression
    given = operands(node, last.frame) if node is not None and not isinstance(node, ast.Raise) else {}
    touches = any(is_tensor(value) or isinstance(value, nn.Cell) for value in given.values())
    return "forward op" if touches else "user code"


_NAMED = re.compile(r"For (?:primitive\[?|['\"])(\w+)['\"\]]?|[Tt]he kernel (\w+)|operator \[?(\w+)")


def failing_op(failure: Failure) -> str | None:
    """By the message, which mostly names the primitive; else the function of the library's, or the expression."""
    found = _NAMED.search(failure.message)
    if found:
        name = next(group for group in found.groups() if group)
        return CELLS.get(name) or primitive(name)
    if failure.compiled is not None:  # the library's frames are those of its compiler
        return None
    for place in failure.places[len(failure.places) - _tail(failure) :]:
        named = function(place.function)
        if named is not None and place.function != "__call__":
            return named
    last = failure.user[-1] if failure.user else None
    node = last.expression if last is not None else None
    return op_of(node) if node is not None else None


def _tail(failure: Failure) -> int:
    """Frames behind the user's last."""
    count = 0
    for place in reversed(failure.places):
        if place.is_user:
            break
        count += 1
    return count


def _inputs(failure: Failure) -> dict[str, Any]:
    """What the failing expression of the user's names, or, in a cell of the library, what that was given and has."""
    last_call = failure.calls[-1] if failure.calls else None
    given: dict[str, Any] = {}
    if last_call is not None and type(last_call.cell).__module__.startswith("mindspore."):
        given = {f"input_{k}" if k else "input": value for k, value in enumerate(last_call.args)}
        given |= last_call.kwargs | dict(own_parameters(last_call.cell))
    elif failure.user and (node := failure.user[-1].expression) is not None:
        frame = failure.user[-1].frame
        given = operands(node, frame)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name | ast.Attribute) and is_tensor(value := evaluate(inner, frame)):
                given.setdefault(ast.unparse(inner)[:60], value)
    found = {}
    for name, value in list(given.items())[:_MOST]:
        if is_tensor(value):
            known = failure.training.parameters.names.get(id(value))
            found[name] = {**_tensor(value), **({"parameter": known[0]} if known else _origin(value, failure))}
    return found


def _origin(tensor: Any, failure: Failure) -> dict[str, Any]:
    """The variable with the array that a tensor was made of, where the user's calls name one of its dtype, and its line; else the data set that
    `Model` takes it from."""
    for place in failure.user:
        node = place.expression
        for inner in ast.walk(node) if node is not None else ():
            held = evaluate(inner, place.frame) if isinstance(inner, ast.Name) else None
            if isinstance(held, np.ndarray) and held.dtype.name == dtype_name(tensor):
                name = inner.id if isinstance(inner, ast.Name) else ""
                number = queries.assignment(place.path, name, before=place.line)
                if number is not None:
                    return {"origin": {"kind": "variable", "name": name, "line": line_at(place.path, number)}}
    batch = failure.calls[0].args if failure.calls else ()
    source = source_in(place.frame for place in reversed(failure.places) if not place.is_user)
    line = KNOWN.described.line(source) if source is not None else None
    if line is None or not any(given is tensor for given in tensors_in(batch)):
        return {}
    return {"origin": {"kind": "data", "dataset": type(source).__name__, "line": line}}


def _tensor(tensor: Any) -> dict[str, Any]:
    return {"shape": list(shape_of(tensor)), "dtype": dtype_name(tensor), "device": "cpu"}


def _module(call: Call, failure: Failure) -> dict[str, Any]:
    kind = type(call.cell).__name__
    names = {**{name: name for name in _SETTINGS}, **RENAMED.get(kind, {})}
    held = vars(call.cell)
    settings = {ours: held[name] for name, ours in names.items() if name in held and plain(held[name])}
    return {
        "name": call.name,
        "type": kind,
        "configuration": settings,
        "made": KNOWN.made.line(call.cell),
        "inputs": [_tensor(value) for value in (*call.args, *call.kwargs.values()) if is_tensor(value)],
    }


def fed_by(failure: Failure) -> dict[str, Any] | None:
    """The line that made what the innermost cell was called with."""
    call = failure.calls[-1] if failure.calls else None
    given = next((value for value in (*call.args, *call.kwargs.values()) if is_tensor(value)), None) if call else None
    return given_line(given, failure.user[-1]) if given is not None and failure.user else None


def _frame(place: FrameState) -> dict[str, Any]:
    held = {name: _tensor(value) for name, value in place.frame.f_locals.items() if is_tensor(value)}
    return {
        **(to_json(place.source) or {}),
        "function": place.function,
        "tensors": dict(list(held.items())[:_MOST]),
    }


def concerns_training(problem: BaseException, trace: TracebackType | None) -> bool:
    """Of a program that ends before a cell is called: its own code failed, and it trains with MindSpore."""
    return failed_early(problem, places_of(trace), "mindspore")


def trim(problem: BaseException) -> None:
    """Takes Tensonde's frames out of an exception's traceback, and of those that it came from."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [problem]
    while waiting:
        found = waiting.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        found.__traceback__ = _without_our_frames(found.__traceback__)
        waiting += [found.__cause__, found.__context__]
        if isinstance(found, BaseExceptionGroup):
            waiting += found.exceptions


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    kept: list[TracebackType] = []
    while trace is not None:
        if not is_ours(trace.tb_frame.f_code):
            kept.append(trace)
        trace = trace.tb_next
    for frame, following in zip(kept, [*kept[1:], None], strict=False):
        frame.tb_next = following
    return kept[0] if kept else None
