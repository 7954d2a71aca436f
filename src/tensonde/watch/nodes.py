"""The tree of a condition. Numbers and truths are kept apart, so that no operator has two meanings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tensonde.model.site import Site


@dataclass(frozen=True, slots=True)
class Const:
    value: float

    def __str__(self) -> str:
        return f"{self.value:g}"


@dataclass(frozen=True, slots=True)
class Field:
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class History:
    """`function` over the `length` observations of `field` before this one (`prev`: the length-th before)."""

    function: str
    field: str
    length: int

    def __str__(self) -> str:
        return f"{self.function}({self.field}, {self.length})"


@dataclass(frozen=True, slots=True)
class Seen:
    def __str__(self) -> str:
        return "seen()"


@dataclass(frozen=True, slots=True)
class Inside:
    low: float
    high: float

    def __str__(self) -> str:
        return f"inside({self.low!r}, {self.high!r})"


@dataclass(frozen=True, slots=True)
class Spread:
    """The largest `field` of all ranks minus the smallest."""

    field: str

    def __str__(self) -> str:
        return f"spread({self.field})"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    operator: str
    left: Node
    right: Node

    def __str__(self) -> str:
        return f"({self.left} {self.operator} {self.right})"


@dataclass(frozen=True, slots=True)
class Function:
    """`neg`, `abs`, `log10`, `sqrt`, `min` or `max` of numbers."""

    name: str
    arguments: tuple[Node, ...]

    def __str__(self) -> str:
        if self.name == "neg":
            return f"-{self.arguments[0]}"
        return f"{self.name}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Truth:
    value: bool

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Compare:
    operator: str
    left: Node
    right: Node

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True, slots=True)
class And:
    items: tuple[Node, ...]

    def __str__(self) -> str:
        return " and ".join(f"({item})" if isinstance(item, Or) else str(item) for item in self.items)


@dataclass(frozen=True, slots=True)
class Or:
    items: tuple[Node, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.items))


@dataclass(frozen=True, slots=True)
class Not:
    item: Node

    def __str__(self) -> str:
        return f"not ({self.item})"


@dataclass(frozen=True, slots=True)
class Named:
    """A named condition: the first case whose test accepts the site, or not applicable there."""

    name: str
    cases: tuple[tuple[Callable[[Site], bool], Node], ...]

    def __str__(self) -> str:
        return self.name


Node: TypeAlias = (
    Const | Field | History | Seen | Inside | Spread | Arithmetic | Function | Truth | Compare | And | Or | Not | Named
)
TRUTHS = (Truth, Compare, And, Or, Not, Named)
TERMS = (Field, History, Seen, Inside, Spread)
"""The leaves that read something; what a hit shows as actual values."""


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Arithmetic() | Compare():
            return (node.left, node.right)
        case Function():
            return node.arguments
        case And() | Or():
            return node.items
        case Not():
            return (node.item,)
        case Named():
            return tuple(case for _, case in node.cases)
    return ()


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in children(node):
        yield from walk(child)


def resolve(node: Node, site: Site) -> Node | None:
    """The tree as it applies at `site`; None where it does not apply.

    A named condition that does not fit drops out of an `or` and takes an `and` or a `not` with it.
    """
    match node:
        case Named():
            for fits, case in node.cases:
                if fits(site):
                    return resolve(case, site)
            return None
        case And():
            items = [resolve(item, site) for item in node.items]
            kept = tuple(item for item in items if item is not None)
            return And(kept) if len(kept) == len(items) else None
        case Or():
            left = tuple(item for item in (resolve(item, site) for item in node.items) if item is not None)
            return None if not left else left[0] if len(left) == 1 else Or(left)
        case Not():
            inner = resolve(node.item, site)
            return None if inner is None else Not(inner)
    return node
