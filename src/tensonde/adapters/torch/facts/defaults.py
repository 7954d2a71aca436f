"""Hyperparameters that are set where no step reads them: `optimizer.defaults`, which only new groups are filled from, and
attributes of the optimizer itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from tensonde.adapters.torch.facts import syntax
from tensonde.adapters.torch.facts.origins import KNOWN, line_at

_MADE: dict[int, tuple[dict[str, float], list[dict[str, float]]]] = {}
"""By the optimizer's number: its defaults and its groups when it was made."""


def noted(optimizer: Any) -> None:
    """An optimizer has just been made."""
    _MADE[KNOWN.number(optimizer)] = (_plain(optimizer.defaults), [_plain(group) for group in optimizer.param_groups])


def unread(optimizer: Any) -> dict[str, Any] | None:
    """A number that has been changed since in a place that nothing reads, while all groups kept theirs."""
    made = _MADE.get(KNOWN.number(optimizer))
    if made is None or len(made[1]) != len(optimizer.param_groups):
        return None  # a group was added: it took its numbers from the defaults
    defaults, groups = made
    changed = [
        ("defaults", key, value) for key, value in _plain(optimizer.defaults).items() if defaults.get(key) != value
    ]
    if type(optimizer).__module__.startswith("torch.optim"):
        own = _plain(vars(optimizer))
        changed += [("attribute", key, value) for key, value in own.items() if key in defaults]
    for where, key, value in changed:
        now = [_plain(group).get(key) for group in optimizer.param_groups]
        if key not in defaults or None in now or value in now or now != [group.get(key) for group in groups]:
            continue
        lines = [(path, number) for path in KNOWN.files() for number in _set(path, where, key)]
        if len({path for path, _ in lines}) == 1:
            return {"where": where, "name": key, "value": value, "used": now[:8], "line": line_at(*lines[0])}
    return None


def _plain(numbers: dict[str, Any]) -> dict[str, float]:
    return {
        key: value
        for key, value in numbers.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and not key.startswith("_")
    }


def _set(path: str, where: str, key: str) -> Iterator[int]:
    """Lines such as `optimizer.defaults["lr"] = ...`, `optimizer.lr *= ...`."""
    tree = syntax.tree(path)
    for node in ast.walk(tree) if tree is not None else ():
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        for target in targets:
            if where == "attribute":
                if isinstance(target, ast.Attribute) and target.attr == key and not _is_self(target.value):
                    yield target.lineno
            elif (
                isinstance(target, ast.Subscript)
                and isinstance(target.value, ast.Attribute)
                and target.value.attr == "defaults"
                and isinstance(target.slice, ast.Constant)
                and target.slice.value == key
            ):
                yield target.lineno


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
