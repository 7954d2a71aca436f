"""Things that are not what a call takes: a tuple for a tensor, an inference tensor in training, another optimizer's
state, raw outputs for probabilities."""

from __future__ import annotations

import ast
import re
from typing import Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.postmortem.definition import definition, roots
from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.program import syntax
from tensonde.program.classes import source_file, user_method
from tensonde.program.lines import line_at, line_of, to_json
from tensonde.program.values import FrameState, evaluate


def not_a_tensor(failure: Failure) -> dict[str, Any] | None:
    """The variable of the failing line that holds something else, and the line that gave it that; of None that a model
    of the user's gave, the end of its forward."""
    told = re.search(r"not (?:a )?(\w+)$|'(\w+)' object", failure.message.strip())
    wanted = (told[1] or told[2]) if told else ""
    for place in reversed(failure.user):
        for name in _names_at(place):
            value = place.frame.f_locals.get(name, place.frame.f_globals.get(name, place))
            if type(value).__name__ != wanted or isinstance(value, Tensor | nn.Module):
                continue
            scope = syntax.scope_at(place.path, place.line)
            bound = [b for b in (syntax.bindings(scope, name) if scope else ()) if b.line < place.line and not b.loop]
            if not bound:
                continue
            made = bound[-1]
            called = evaluate(made.value.func, place.frame) if isinstance(made.value, ast.Call) else None
            if value is None and not isinstance(called, nn.Module):
                continue  # None may come from anywhere
            fact: dict[str, Any] = {
                "name": name,
                "type": wanted,
                "line": line_at(place.path, made.line),
            }
            if isinstance(called, nn.Module):
                fact |= {"module": failure.name_of(called), "module_type": type(called).__name__}
                end = _forward_end(called) if value is None else None
                fact |= {"line": end, "forward": True} if end else {}
            return fact
    return None


_NUMBERS = ("item", "float", "tolist", "numpy", "int")


def plain_number(failure: Failure) -> dict[str, Any] | None:
    """Of a loss that is a plain number: the line that takes it out of the graph, in the loop or in the function (or
    module) that computes it."""
    for place in reversed(failure.user):
        scope = syntax.scope_at(place.path, place.line)
        for name in _names_at(place):
            value = place.frame.f_locals.get(name, place.frame.f_globals.get(name))
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            for binding in reversed(
                [b for b in (syntax.bindings(scope, name) if scope else ()) if b.line < place.line]
            ):
                if _takes_number(binding.value):
                    return {"name": name, "type": type(value).__name__, "line": line_at(place.path, binding.line)}
                called = evaluate(binding.value.func, place.frame) if isinstance(binding.value, ast.Call) else None
                inside = _number_inside(called)
                if inside is not None:
                    return {"name": name, "type": type(value).__name__, "line": inside}
    return None


def _takes_number(node: ast.AST) -> bool:
    return any(
        isinstance(inner, ast.Call)
        and (getattr(inner.func, "attr", "") in _NUMBERS or getattr(inner.func, "id", "") in _NUMBERS)
        and not (isinstance(inner.func, ast.Attribute) and inner.func.attr in ("float", "int"))
        for inner in ast.walk(node)
    )


def _number_inside(called: Any) -> dict[str, Any] | None:
    """The line of a function that takes a number out of what it returns."""
    found: tuple[str, Any] | None = None
    if isinstance(called, nn.Module):
        found = _forward(called)
    elif (code := getattr(called, "__code__", None)) is not None:
        scope = syntax.scope_at(code.co_filename, code.co_firstlineno + 1)
        found = (code.co_filename, scope) if scope is not None else None
    if found is None:
        return None
    path, scope = found
    returned = {
        inner.id
        for node in syntax.statements(scope)
        if isinstance(node, ast.Return) and node.value is not None
        for inner in ast.walk(node.value)
        if isinstance(inner, ast.Name)
    }
    for node in syntax.statements(scope):
        given = node.value if isinstance(node, ast.Return | ast.Assign | ast.AugAssign) else None
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        ours = isinstance(node, ast.Return) or any(
            isinstance(part, ast.Name) and part.id in returned for target in targets for part in ast.walk(target)
        )
        if given is not None and ours and _takes_number(given):
            return line_at(path, node.lineno)
    return None


def _names_at(place: FrameState) -> list[str]:
    """Names that the statement on the line reads, in order."""
    scope = syntax.scope_at(place.path, place.line)
    inside = [
        node
        for node in (syntax.statements(scope) if scope is not None else ())
        if node.lineno <= place.line <= (node.end_lineno or 0)
    ]
    smallest = min(inside, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)
    if smallest is None:
        return []
    return [n.id for n in ast.walk(smallest) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]


def _forward_end(module: nn.Module) -> dict[str, Any] | None:
    """The last statement of a forward that returns nothing."""
    found = _forward(module)
    if found is None or any(isinstance(node, ast.Return) and node.value for node in syntax.statements(found[1])):
        return None
    return line_at(found[0], found[1].body[-1].lineno)


def _forward(module: nn.Module) -> tuple[str, ast.FunctionDef] | None:
    return user_method(type(module), "forward")


def inference_block(failure: Failure) -> dict[str, Any] | None:
    """The only `inference_mode` of the program: in the files of the user's frames and models."""
    paths = dict.fromkeys([place.path for place in failure.user])
    paths |= dict.fromkeys(
        path for root in roots(failure) for module in root.modules() if (path := source_file(type(module)))
    )
    found = []
    for path in paths:
        for node in syntax.walk(path):
            guards = [item.context_expr for item in node.items] if isinstance(node, ast.With) else []
            guards += node.decorator_list if isinstance(node, ast.FunctionDef) else []
            found += [(path, guard.lineno) for guard in guards if "inference_mode" in ast.unparse(guard)]
    return {"line": line_at(*found[0])} if len(found) == 1 else None


def optimizer_state(failure: Failure) -> dict[str, Any] | None:
    """The optimizer that was to take a state: where it is made, and the groups of both."""
    for place in reversed(failure.places):
        held = place.frame.f_locals
        optimizer, state = held.get("self"), held.get("state_dict")
        if isinstance(optimizer, torch.optim.Optimizer) and isinstance(state, dict):
            return {
                "line": line_of(KNOWN.made.anywhere(optimizer)),
                "type": type(optimizer).__name__,
                "groups": [len(group["params"]) for group in optimizer.param_groups[:16]],
                "saved": [len(group["params"]) for group in state.get("param_groups", ())[:16]],
            }
    return None


def raw_output(failure: Failure) -> dict[str, Any] | None:
    """Where the model's output leaves it: the last `return` of its forward, or the last layer of a Sequential."""
    for root in roots(failure):
        if next(root.parameters(), None) is None:
            continue
        if isinstance(root, nn.Sequential) and len(root):
            last = root[-1]
            line = definition(last, failure)
            return {"module": failure.name_of(last), "line": to_json(line)} if line else None
        found = _forward(root)
        if found is not None:
            given = [n.lineno for n in syntax.statements(found[1]) if isinstance(n, ast.Return) and n.value]
            if given:
                return {
                    "module": failure.name_of(root),
                    "line": line_at(found[0], given[-1]),
                }
    return None
