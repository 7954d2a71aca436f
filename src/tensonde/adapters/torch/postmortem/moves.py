"""Which line of the program moved a tensor, or the model that it belongs to, to its device: `net = Net().to(device)`, `x = x.cuda()`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torch import Tensor, nn

from tensonde.adapters.torch.postmortem.definition import definition, frames, roots
from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.program import syntax
from tensonde.program.lines import line_at, to_json

_MOVES = ("to", "cuda", "cpu", "xpu", "npu", "to_empty")


def moves(failure: Failure, tensors: dict[str, Tensor]) -> dict[str, dict[str, Any]]:
    """By the op's argument: `device`, the line that `moved` it there, and for a parameter the line that makes its `model`. What the
    source does not tell is left out."""
    found = {}
    for name, tensor in tensors.items():
        holder = _holder(tensor, failure)
        line = _moved(holder if holder is not None else tensor, failure)
        fact = {"device": str(tensor.device), "moved": line}
        if holder is not None:
            fact["model"] = to_json(definition(holder, failure))
        found[name] = {key: value for key, value in fact.items() if value}
    return found


def _holder(tensor: Tensor, failure: Failure) -> nn.Module | None:
    """The outermost model whose parameter or buffer it is."""
    holders = [root for root in roots(failure) if any(part is tensor for part in (*root.parameters(), *root.buffers()))]
    return max(holders, key=lambda root: sum(1 for _ in root.modules()), default=None)


def _moved(held: Any, failure: Failure) -> dict[str, Any] | None:
    for frame in frames(failure):
        path = frame.f_code.co_filename
        for spelling in _spellings(held, frame):
            lines = [line for line in _lines(path, spelling) if _same_scope(path, line, frame, spelling)]
            before = [line for line in lines if line <= frame.f_lineno]
            if lines:
                return line_at(path, max(before or lines))
    return None


def _spellings(held: Any, frame: FrameType) -> Iterator[str]:
    for name, value in {**frame.f_globals, **frame.f_locals}.items():
        if value is held:
            yield name
    for name, value in getattr(frame.f_locals.get("self"), "__dict__", {}).items():
        if value is held:
            yield f"self.{name}"
    modules = getattr(frame.f_locals.get("self"), "_modules", None) or {}
    yield from (f"self.{name}" for name, module in modules.items() if module is held)


def _lines(path: str, spelling: str) -> Iterator[int]:
    """Where it is moved, in place or by an assignment, also as one of several: `x, y = x.to(d), y.to(d)`."""
    for node in syntax.walk(path):
        if isinstance(node, ast.Assign) and _mover(node.value) is not None:
            named = any(syntax.spelled(target) == spelling for target in node.targets)
        else:
            mover = _mover(node)
            named = mover is not None and syntax.spelled(mover) == spelling
        if named:
            yield node.lineno  # type: ignore[attr-defined]


def _mover(node: ast.AST) -> ast.expr | None:
    """What is moved, if this moves something."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in _MOVES:
            return value
    return None


def _same_scope(path: str, line: int, frame: FrameType, spelling: str) -> bool:
    """A local variable of another function has the same name by chance."""
    if spelling not in frame.f_locals or frame.f_locals is frame.f_globals:
        return True
    return syntax.scope_at(path, line) is syntax.scope_at(path, frame.f_lineno)
