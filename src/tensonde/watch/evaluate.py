"""From a tree to a function over columns: one numpy operation a node, over all rows at once.

A comparison with NaN is false (also `!=`), and so is NaN by itself. Division by zero gives Inf or NaN, never
an error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any, Protocol, TypeAlias

import numpy as np

from tensonde.watch.nodes import (
    TRUTHS,
    And,
    Arithmetic,
    Compare,
    Const,
    Field,
    Function,
    History,
    Inside,
    Node,
    Not,
    Or,
    Seen,
    Spread,
    Truth,
)
from tensonde.watch.vocabulary import Column


class Columns(Protocol):
    """What an expression reads. Every method gives one value a row."""

    def field(self, name: str) -> Column: ...
    def history(self, function: str, field: str, length: int) -> Column: ...
    def seen(self) -> Column: ...
    def inside(self, low: float, high: float) -> Column: ...
    def spread(self, field: str) -> Column: ...


Program: TypeAlias = Callable[[Columns], Any]
"""Gives an array, or a scalar where the tree reads nothing."""


def _differs(left: Any, right: Any) -> Any:
    return (left < right) | (left > right)


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide, "%": np.mod, "**": np.power,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
    "!=": _differs,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "log10": np.log10,
    "min": lambda *xs: reduce(np.minimum, xs), "max": lambda *xs: reduce(np.maximum, xs),
}  # fmt: skip


@lru_cache(maxsize=1024)
def program(node: Node) -> Program:
    """The function that computes `node`; named conditions must have been resolved."""
    match node:
        case Const(value):
            number = np.float64(value)
            return lambda columns: number
        case Truth(flag):
            answer = np.bool_(flag)
            return lambda columns: answer
        case Field(name):
            return lambda columns: columns.field(name)
        case History(function, field, length):
            return lambda columns: columns.history(function, field, length)
        case Seen():
            return lambda columns: columns.seen()
        case Inside(low, high):
            return lambda columns: columns.inside(low, high)
        case Spread(field):
            return lambda columns: columns.spread(field)
        case Arithmetic() | Compare():
            apply, left, right = _OPERATORS[node.operator], program(node.left), program(node.right)
            return lambda columns: apply(left(columns), right(columns))
        case Function(name, arguments):
            call, parts = _FUNCTIONS[name], [program(argument) for argument in arguments]
            return lambda columns: call(*(part(columns) for part in parts))
        case And(items):
            return _all([truth(item) for item in items])
        case Or(items):
            choices = [truth(item) for item in items]
            return lambda columns: reduce(operator.or_, (choice(columns) for choice in choices))
        case Not(item):
            inner = truth(item)
            return lambda columns: ~inner(columns)
    raise TypeError(f"{node} has not been resolved for a site")


def _all(items: list[Program]) -> Program:
    def both(columns: Columns) -> Any:
        got = items[0](columns)
        for item in items[1:]:
            if not np.count_nonzero(got):
                break
            got = got & item(columns)
        return got

    return both


@lru_cache(maxsize=1024)
def truth(node: Node) -> Program:
    """`node` as true or false: a number is true when it is neither 0 nor NaN."""
    compute = program(node)
    if isinstance(node, TRUTHS):
        return compute
    zero = np.float64(0)
    return lambda columns: _differs(compute(columns), zero)
