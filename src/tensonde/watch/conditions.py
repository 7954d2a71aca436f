"""The table of named conditions, each an expression of the language; docs/conditions.md comes from here."""

from __future__ import annotations

from functools import lru_cache

from tensonde.watch.expression import Expression
from tensonde.watch.general import MORE
from tensonde.watch.grammar import Argument, Build
from tensonde.watch.mindinsight import MINDINSIGHT
from tensonde.watch.named import Condition
from tensonde.watch.nodes import Named
from tensonde.watch.sure import SURE

CONDITIONS = (*MINDINSIGHT, *MORE, *SURE)
_BY_NAME = {name: condition for condition in CONDITIONS for name in (condition.name, *condition.aliases)}


def lookup(name: str) -> Condition | None:
    """By name or alias; case does not matter."""
    return _BY_NAME.get(name.lower())


def _names(name: str) -> Build | None:
    condition = lookup(name)
    if condition is None:
        return None

    def build(given: list[Argument], named: dict[str, Argument]) -> Named:
        cases = condition.cases(condition.bind(given, named))
        return Named(condition.name, tuple((where, Expression.parse(text).tree) for where, text in cases))

    return build


@lru_cache(maxsize=256)
def parse(text: str) -> Expression:
    """A condition in the watch language, with named conditions; raises SyntaxProblem."""
    return Expression.parse(text, _names, _BY_NAME)
