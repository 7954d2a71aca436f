"""Gradients that an autograd.Function of the user's gets wrong: where its backward returns them, and where it is applied."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

from tensonde.adapters.torch.postmortem.graph import differentiated, nodes
from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.program import syntax
from tensonde.program.frames import is_user
from tensonde.program.lines import line_at

_WRONG = re.compile(
    r"unction (?P<name>\w+)Backward returned an (?:incorrect number of gradients|invalid gradient at index (?P<index>\d+))"
)


def own_gradient(failure: Failure) -> dict[str, Any] | None:
    """The engine tells after the backward has returned, so that no frame of it is left: the graph still knows the class."""
    told, loss = _WRONG.search(failure.message), differentiated(failure)
    if told is None or loss is None:
        return None
    kinds = (type(node) for node in nodes([loss]) if type(node).__name__ == f"{told['name']}Backward")
    owner = next((kind._forward_cls for kind in kinds if hasattr(kind, "_forward_cls")), None)
    code = getattr(inspect.unwrap(getattr(owner, "backward", None) or own_gradient), "__code__", None)
    if owner is None or code is None or not is_user(code):
        return None
    scope = syntax.function_of(code)
    returned = [n for n in syntax.statements(scope) if isinstance(n, ast.Return)] if scope is not None else []
    if not returned:
        return None
    index = int(told["index"]) if told["index"] else None
    value = returned[-1].value
    whole = isinstance(value, ast.Tuple) and index is not None and index < len(value.elts)
    part = value.elts[index] if whole and isinstance(value, ast.Tuple) and index is not None else value
    return {
        "function": owner.__name__,
        "line": line_at(code.co_filename, (part or returned[-1]).lineno),
        "returns": ast.unparse(part) if part is not None else "nothing",
        "argument": _argument(owner, index),
        "applied": _applied(owner.__name__, code.co_filename, failure),
    }


def _argument(owner: Any, index: int | None) -> str | None:
    """What the forward calls the input that the gradient is for."""
    names = list(inspect.signature(owner.forward).parameters)
    with_context = len(names) > 0 and "setup_context" not in vars(owner)
    at = None if index is None else index + with_context
    return names[at] if at is not None and at < len(names) else None


def _applied(name: str, path: str, failure: Failure) -> dict[str, Any] | None:
    """The line that applies it: `Name.apply(...)`, or a call of what that was given to."""
    for file in dict.fromkeys([path, *(place.path for place in failure.user)]):
        every = list(syntax.walk(file))
        called = [node for node in every if isinstance(node, ast.Call)]
        aliases = {
            ast.unparse(node.targets[0])
            for node in every
            if isinstance(node, ast.Assign) and _is_apply(node.value, name)
        }
        for call in called:
            if _is_apply(call.func, name) or ast.unparse(call.func) in aliases:
                return line_at(file, call.lineno)
    return None


def _is_apply(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "apply" and ast.unparse(node.value).split(".")[-1] == name
