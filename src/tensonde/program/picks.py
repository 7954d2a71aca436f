"""What an index or a call says of rows: whether all are taken, or turned round, or moved on, and by which dimension."""

from __future__ import annotations

import ast

from tensonde.program.syntax import called

_DRAWN = frozenset(("permutation", "permuted", "randperm", "shuffle", "sample", "choice", "choices", "argsort"))
"""Orders that are others each time, or of other things: the same words on another line give another one."""


def along_others(node: ast.Call) -> bool:
    """A call that says along which dimensions, and not along the first."""
    given = next((k.value for k in node.keywords if k.arg in ("dim", "dims", "axis", "axes")), None)
    parts = given.elts if isinstance(given, ast.Tuple | ast.List) else [given]
    return all(isinstance(part, ast.Constant) and isinstance(part.value, int) and part.value > 0 for part in parts)


def what_was_done(node: ast.Call) -> str:
    """What was done; a draw is another one on another line."""
    name = called(node)
    return f"{name} in line {node.lineno}" if name in _DRAWN else name


def counted(node: ast.ListComp | ast.GeneratorExp) -> bool:
    """`[make() for _ in range(9)]`: so many of a kind."""
    given = node.generators[0].iter
    return len(node.generators) == 1 and isinstance(given, ast.Call) and called(given) == "range"


def moves_first(node: ast.Call) -> bool:
    """By what it says, the first dimension gets another place."""
    given = node.args[0].elts if node.args and isinstance(node.args[0], ast.Tuple) else node.args
    places = [part.value for part in given if isinstance(part, ast.Constant)]
    if called(node) == "permute" or len(places) > 2:
        return bool(places) and places[0] != 0
    return not given or 0 in places


def moves(chosen: ast.expr) -> bool:
    """Something is added to an index, or taken off; where a slice begins and ends is another matter."""
    if isinstance(chosen, ast.Slice):
        return False
    if isinstance(chosen, ast.BinOp) and isinstance(chosen.op, ast.Add | ast.Sub):
        return True
    return any(moves(part) for part in ast.iter_child_nodes(chosen) if isinstance(part, ast.expr))


def takes_all(part: ast.expr) -> bool:
    """`None`, `...` or `:`."""
    if isinstance(part, ast.Slice):
        return part.lower is part.upper is part.step is None
    return isinstance(part, ast.Constant) and (part.value is None or part.value is ...)


def behind_first(chosen: ast.expr) -> bool:
    """All rows are taken, and only what is in them is turned round."""
    return isinstance(chosen, ast.Tuple) and bool(chosen.elts) and takes_all(chosen.elts[0])


def backwards(part: ast.AST) -> bool:
    return isinstance(part, ast.Slice) and isinstance(part.step, ast.UnaryOp) and isinstance(part.step.op, ast.USub)
