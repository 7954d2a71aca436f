"""A condition: parsed once, asked what it reads and what it compares with, evaluated over columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensonde.model.site import Site
from tensonde.watch import grammar
from tensonde.watch.evaluate import program, truth
from tensonde.watch.nodes import (
    TERMS,
    And,
    Arithmetic,
    Compare,
    Const,
    Field,
    Function,
    History,
    Node,
    Not,
    Or,
    Spread,
    resolve,
    walk,
)
from tensonde.watch.table import Table
from tensonde.watch.vocabulary import COUNTS

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


@dataclass(frozen=True, slots=True)
class Expression:
    """`text` as it was written and `tree` what it means."""

    text: str
    tree: Node

    @classmethod
    def parse(cls, text: str, names: grammar.Names = lambda name: None, known: Iterable[str] = ()) -> Expression:
        """Raises SyntaxProblem. Without `names` no named condition is known: see `conditions.parse`."""
        return cls(text, grammar.parse(text, names, known))

    def at(self, site: Site) -> Expression | None:
        """The expression with its named conditions resolved for `site`; None when it does not fit there."""
        tree = resolve(self.tree, site)
        return None if tree is None else self if tree is self.tree else Expression(self.text, tree)

    @property
    def fields(self) -> frozenset[str]:
        """The fields it reads, also inside history functions, also behind `and` and `or`."""
        found = [node for node in walk(self.tree) if isinstance(node, Field | History | Spread)]
        return frozenset(node.name if isinstance(node, Field) else node.field for node in found)

    @property
    def across(self) -> bool:
        """Whether it compares ranks, which no rank can do by itself."""
        return any(isinstance(node, Spread) or node == Field("differs") for node in walk(self.tree))

    @property
    def terms(self) -> tuple[Node, ...]:
        """Everything it reads from a row or its history, in order of appearance."""
        return tuple(dict.fromkeys(node for node in walk(self.tree) if isinstance(node, TERMS)))

    @property
    def histories(self) -> frozenset[History]:
        return frozenset(node for node in walk(self.tree) if isinstance(node, History))

    @property
    def presets(self) -> dict[str, float]:
        """The constants compared with, such as {"norm >": 1000.0}; a bare count is compared with 0."""
        found: dict[str, float] = {}
        _presets(self.tree, found)
        return found

    def evaluate(self, columns: NDArray[np.void] | Mapping[str, Any]) -> NDArray[np.bool_]:
        """True where it holds, one value a row; rows have no history here and contextual fields are NaN."""
        table = Table(columns)
        with np.errstate(all="ignore"):
            return np.array(np.broadcast_to(truth(self.tree)(table), table.size))

    def __str__(self) -> str:
        return self.text


def _presets(node: Node, found: dict[str, float]) -> None:
    match node:
        case Compare():
            left, right = _constant(node.left), _constant(node.right)
            if right is not None and left is None:
                found.setdefault(f"{node.left} {node.operator}", right)
            elif left is not None and right is None:
                found.setdefault(f"{node.right} {_FLIPPED[node.operator]}", left)
        case And() | Or():
            for item in node.items:
                _presets(item, found)
        case Not():
            _presets(node.item, found)
        case Field(name):
            found.setdefault(f"{name} >" if name in COUNTS else f"{name} !=", 0.0)


def _constant(node: Node) -> float | None:
    if not all(isinstance(part, Const | Arithmetic | Function) for part in walk(node)):
        return None
    with np.errstate(all="ignore"):
        return float(program(node)(Table({})))
