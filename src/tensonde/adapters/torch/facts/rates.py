"""Lines of the program that set a learning rate: `group["lr"] = ...` for a group of some optimizer's `param_groups`."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from tensonde.adapters.torch.facts import syntax
from tensonde.adapters.torch.facts.origins import line_at

MOST = 16


def rates_set(files: Iterable[str]) -> list[dict[str, Any]]:
    """Each with the number that it sets, where that stands there."""
    found = []
    for path in files:
        tree = syntax.tree(path)
        nodes = list(ast.walk(tree)) if tree is not None else []
        groups = {name for node in nodes for name in _groups(node)}
        for node in (one for one in nodes if isinstance(one, ast.stmt)):
            targets: list[ast.expr] = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AugAssign)
                else []
            )
            if any(_is_rate(target, groups) for target in targets):
                value = (
                    node.value.value if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) else None
                )
                found.append({**line_at(path, node.lineno), "value": value})
    return sorted(found, key=lambda line: (line["file"], line["line"]))[:MOST]


def _groups(node: ast.AST) -> list[str]:
    """Names that stand for a group: loop variables over `param_groups`, and `group = optimizer.param_groups[0]`."""
    match node:
        case ast.For(target=target, iter=given) | ast.comprehension(target=target, iter=given):
            pass
        case ast.Assign(targets=[target], value=given):
            pass
        case _:
            return []
    if not _mentions(given):
        return []
    return [name.id for name in ast.walk(target) if isinstance(name, ast.Name)]


def _mentions(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr == "param_groups" for part in ast.walk(node))


def _is_rate(target: ast.expr, groups: set[str]) -> bool:
    match target:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value="lr")):
            return name in groups
        case ast.Subscript(value=group, slice=ast.Constant(value="lr")):
            return _mentions(group)
    return False
