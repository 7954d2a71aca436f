"""Which op needs a value that was overwritten, and what overwrote it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from tensonde.adapters.torch.postmortem.definition import definition
from tensonde.adapters.torch.postmortem.graph import differentiated, nodes
from tensonde.adapters.torch.postmortem.rerun import Op, rerun
from tensonde.adapters.torch.postmortem.roots import root_call
from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.adapters.torch.wrappers import optimizer_behind
from tensonde.program import syntax
from tensonde.program.lines import line_at, to_json
from tensonde.program.values import FrameState, evaluate

_MESSAGE = re.compile(
    r"\[torch\.\w+ \[(?P<shape>[\d, ]*)\]\]"
    r"(?:, which is output (?P<output>\d+) of (?P<node>\w+),)? is at version (?P<version>\d+)"
)


def modified(failure: Failure) -> dict[str, Any] | None:
    told = _MESSAGE.search(failure.message)
    fact: dict[str, Any] = {}
    shape: list[int] | None = None
    version: int | None = None
    if told:
        shape = [int(n) for n in told["shape"].split(",") if n.strip()]
        version = int(told["version"])
        fact = {"shape": shape, "version": version, "node": told["node"]}
    return {**fact, **(_parameter(failure, shape) or _in_forward(failure) or _in_frame(failure, shape, version) or {})}


def _broken(node: Any) -> bool:
    """Some value that the node saved has been overwritten since."""
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                getattr(node, name)
            except RuntimeError as problem:
                if "modified by an inplace operation" in str(problem):
                    return True
            except Exception:
                continue
    return False


def _parameter(failure: Failure, shape: list[int] | None) -> dict[str, Any] | None:
    """What was overwritten is a parameter: an optimizer stepped between the forward and the backward pass, or a loop over
    the parameters changed them in place."""
    loss = differentiated(failure)
    if loss is None or shape is None:
        return None
    for node in nodes([loss]):
        if not _broken(node):
            continue
        for near in (node, *(following for following, _ in node.next_functions if following is not None)):
            for leaf, _ in near.next_functions:
                held = getattr(leaf, "variable", None)
                if held is not None and sorted(held.shape) == sorted(shape) and held._version > 1:
                    known = failure.state.parameters.names.get(id(held))
                    name = known[0] if known else ""
                    found = _step_line(held, failure)
                    if found is not None:
                        return {"parameter": name, "changed_by": "optimizer step", **found}
                    found = _loop_line(held, failure)
                    if found is not None:
                        return {"parameter": name, **found}
    return None


def _loop_line(parameter: Tensor, failure: Failure) -> dict[str, Any] | None:
    """`p.clamp_(...)` of a loop over parameters, in the loop of the backward pass or in a function that is called there."""
    for place in reversed(failure.user):
        scope = syntax.scope_at(place.path, place.line)
        if scope is None:
            continue
        called = [
            (code.co_filename, inner)
            for node in syntax.statements(scope)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.lineno < place.line
            if (code := getattr(evaluate(node.value.func, place.frame), "__code__", None)) is not None
            if (inner := syntax.scope_at(code.co_filename, code.co_firstlineno + 1)) is not None
        ]
        for path, around in [(place.path, scope), *called]:
            for node, target, name in _changes(around):
                if path == place.path and around is scope and node.lineno > place.line:
                    continue
                base = target.value if isinstance(target, ast.Attribute) and target.attr == "data" else target
                if not isinstance(base, ast.Name):
                    continue
                bound = [b for b in syntax.bindings(around, base.id) if b.loop]
                if bound and "parameters(" in ast.unparse(bound[-1].value):
                    return {
                        "changed_by": name,
                        "line": line_at(path, node.lineno),
                        "variable": ast.unparse(target),
                    }
    return None


def _step_line(parameter: Tensor, failure: Failure) -> dict[str, Any] | None:
    for place in reversed(failure.user):
        scope = syntax.scope_at(place.path, place.line)
        for node in ast.walk(scope) if scope is not None else ():
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "step"
                and node.lineno < place.line
            ):
                optimizer = optimizer_behind(evaluate(node.func.value, place.frame))
                if optimizer is not None and any(
                    held is parameter for group in optimizer.param_groups for held in group["params"]
                ):
                    return {
                        "line": line_at(place.path, node.lineno),
                        "optimizer": ast.unparse(node.func.value),
                    }
    return None


def _in_forward(failure: Failure) -> dict[str, Any] | None:
    found = root_call(failure)
    if found is None:
        return None
    run = rerun(found[0].module, found[0].args, found[0].kwargs)
    for k, op in enumerate(run.ops):
        if op.made is not None and _broken(op.made):
            for later in run.ops[k:]:
                if later is not op and any(_same(a, b) for a in later.changed for b in (*op.inputs, *op.outputs)):
                    return {
                        **_built_in_place(failure, later),
                        "changed_by": later.name,
                        "line": to_json(later.line),
                        "module": _module(failure, later),
                        "needed_by": op.name,
                        "needed_line": to_json(op.line),
                        "needed_module": _module(failure, op),
                    }
    return None


def _built_in_place(failure: Failure, op: Op) -> dict[str, Any]:
    """A layer of torch's own that was built with `inplace=True`: the line that builds it is the one to change."""
    if (
        op.module is None
        or not getattr(op.module, "inplace", False)
        or not type(op.module).__module__.startswith("torch.")
    ):
        return {}
    return {"built": to_json(definition(op.module, failure))}


def _module(failure: Failure, op: Op) -> str | None:
    return failure.name_of(op.module) if op.module is not None else None


def _same(a: Tensor, b: Tensor) -> bool:
    try:
        return a is b or a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    except Exception:
        return False


def _in_frame(failure: Failure, shape: list[int] | None, version: int | None) -> dict[str, Any] | None:
    """An in-place statement of the frames themselves on a tensor that has the shape and the version of the message."""
    for place in reversed(failure.user):
        for node, target, name in _statements(place):
            held = evaluate(target, place.frame)
            if isinstance(held, Tensor) and (shape is None or (list(held.shape) == shape and held._version == version)):
                return {
                    "changed_by": name,
                    "line": line_at(place.path, node.lineno),
                    "variable": ast.unparse(target),
                }
    return None


def _statements(place: FrameState) -> Iterator[tuple[ast.stmt, ast.expr, str]]:
    scope = syntax.scope_at(place.path, place.line)
    for found in _changes(scope) if scope is not None else ():
        if found[0].lineno <= place.line:
            yield found


def _changes(scope: ast.AST) -> Iterator[tuple[ast.stmt, ast.expr, str]]:
    """Statements of a scope that change a tensor in place: the statement, what it changes, and by which op."""
    for node in syntax.statements(scope):
        match node:
            case ast.AugAssign(target=ast.Subscript(value=target)) | ast.AugAssign(target=target):
                yield node, target, f"{type(node.op).__name__.lower()}_"
            case ast.Assign(targets=[ast.Subscript(value=target)]):
                yield node, target, "setitem"
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=target, attr=name))) if name.endswith(
                "_"
            ) and not name.startswith("_"):
                yield node, target, name
