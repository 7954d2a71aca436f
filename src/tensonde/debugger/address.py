"""What `print` and its like take: an address or a pattern, and after it a slice in numpy's syntax.

The address comes first, as long as it can be: where there is a site `lstm:out[1]`, that is what `lstm:out[1]`
means, and `lstm:out[1][0, :3]` is a slice of it; where there is only `lstm:out`, `[1]` is a slice.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tensonde.errors import UsageError
from tensonde.model.site import Kind, Role, Site
from tensonde.session.inspector import Inspector
from tensonde.watch.pattern import Pattern

TELLING = (Role.VALUE, Role.OUT, Role.GRAD)
"""The roles that a pattern without one means."""
_ADDRESS = re.compile(r"(.+):(\w+)(?:\[(\d+)\])?")
_GLOB = re.compile(r"[*?{]|\[.*\](?=.)")


@dataclass(frozen=True, slots=True)
class Reference:
    """`index` is () for the whole tensor; `text` is the slice as it was typed, with its brackets."""

    address: str
    index: tuple[Any, ...] = ()
    text: str = ""

    def __str__(self) -> str:
        return self.address + self.text


def parse_reference(text: str, known: Collection[str]) -> Reference:
    text = text.strip()
    if not text:
        raise UsageError("a site is missing; give one like blocks.0.attn:out, with a slice like [0, :3] if you want.")
    if re.search(r"[\s()=+'\"]|//", re.sub(r"\[[^\]]*\]", "", text)):
        raise UsageError(f"{text!r} is not a site; Python expressions are for `pdb`.")
    base, groups = _cut(text)
    taken = next((k for k in range(len(groups), 0, -1) if base + "".join(groups[:k]) in known), 0)
    address, rest = base + "".join(groups[:taken]), groups[taken:]
    if len(rest) > 1:
        raise UsageError(f"{text!r} has {len(rest)} slices; write one, e.g. {address}[0, 1:3].")
    return Reference(address, parse_slice(rest[0][1:-1]), rest[0]) if rest else Reference(address)


def _cut(text: str) -> tuple[str, list[str]]:
    """The text without the bracketed groups that end it, and those groups."""
    groups: list[str] = []
    while text.endswith("]"):
        depth, start = 0, len(text)
        while start:
            start -= 1
            depth += {"]": 1, "[": -1}.get(text[start], 0)
            if depth == 0:
                break
        if depth:
            raise UsageError(f"{text!r} has a bracket that is not opened.")
        groups.insert(0, text[start:])
        text = text[:start]
    return text, groups


def parse_slice(text: str) -> tuple[Any, ...]:
    """`0, :, 3:5` as an index; also `...`, negative numbers, `None`, and lists of numbers."""
    try:
        subscript = ast.parse(f"x[{text}]", mode="eval").body
    except SyntaxError:
        subscript = None
    if not isinstance(subscript, ast.Subscript):
        raise UsageError(f"[{text}] is not a slice; write it as in numpy, e.g. [0, :, 3:5].")
    parts = subscript.slice.elts if isinstance(subscript.slice, ast.Tuple) else [subscript.slice]
    return tuple(_part(part, text) for part in parts)


def _part(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Slice):
        low, high, step = (None if n is None else _number(n, text) for n in (node.lower, node.upper, node.step))
        if step is not None and step < 1:
            raise UsageError(f"[{text}] steps by {step}; only steps forward are possible.")
        return slice(low, high, step)
    if isinstance(node, ast.Constant) and (node.value is None or node.value is Ellipsis):
        return node.value
    if isinstance(node, ast.List):
        return [_number(item, text) for item in node.elts]
    return _number(node, text)


def _number(node: ast.expr, text: str) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand, text)
    raise UsageError(f"[{text}] may hold whole numbers, a:b:c, ... and None, not {ast.unparse(node)!r}.")


def split_outside(text: str) -> list[str]:
    """Words, where blanks within brackets do not separate."""
    return re.findall(r"(?:\[[^\]]*\]|\S)+", text)


def is_glob(address: str) -> bool:
    return _GLOB.search(address) is not None


def expand(inspector: Inspector, address: str) -> list[str]:
    """The addresses that are meant: itself, the tensors of a site with several, or what a pattern matches."""
    known = inspector.addresses()
    if address in known:
        return [address]
    if not is_glob(address):
        several = [other for other in known if other.startswith(f"{address}[")]
        return several or [address]
    pattern = Pattern.parse(address)
    sites = [site for site in map(as_site, known) if site is not None and pattern.matches(site)]
    found = [site.address for site in sites if ":" in address or site.role in TELLING]
    if not found:
        raise UsageError(f"no site that was seen matches {address!r}; `info sites` lists them.")
    return found


def as_site(address: str) -> Site | None:
    """A site as far as a pattern looks at it."""
    match = _ADDRESS.fullmatch(address)
    if match is None or match[2] not in {str(role) for role in Role}:
        return None
    return Site(0, match[1], Role(match[2]), Kind.MODULE, int(match[3]) if match[3] else None)
