"""The modules of a rank as a tree that folds, each with how it fared: the worst of what was seen at or below it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tensonde.model.site import Kind, Role
from tensonde.page.chart import sparkline
from tensonde.page.markup import mark, number, tag, text
from tensonde.store.reader import Rank

LIMIT = 4000
"""Lines; a larger model is cut, and that is said."""

_WORSE = ["none", "ok", "warn", "bad"]


@dataclass
class Line:
    """One name: a module, a parameter, or a folder of them."""

    name: str
    kind: str = ""
    type: str = ""
    shape: tuple[int, ...] | None = None
    status: str = "none"
    absmax: float = math.nan
    history: list[float] = field(default_factory=list)
    inside: dict[str, Line] = field(default_factory=dict)


def module_tree(rank: Rank) -> str:
    root = _grow(rank)
    if not root.inside:
        return tag("p", "No module was seen.", class_="dim")
    left = [LIMIT]
    body = "".join(_draw(line, left, depth=0) for line in root.inside.values())
    return body + (tag("p", f"Only the first {LIMIT} are shown.", class_="dim") if left[0] <= 0 else "")


def _grow(rank: Rank) -> Line:
    root = Line("")
    hit = {hit.site for hit in rank.hits}
    table = rank.digests(columns=["site", "nan", "pos_inf", "neg_inf", "absmax", "norm"])
    bad: set[int] = set()
    absmax: dict[int, float] = {}
    norms: dict[int, list[float]] = {}
    for site, *counts, largest, norm in zip(*(table[name].to_pylist() for name in table.column_names), strict=True):
        if any(counts):
            bad.add(site)
        if largest is not None and not largest <= absmax.get(site, -math.inf):
            absmax[site] = largest
        norms.setdefault(site, []).append(math.nan if norm is None else norm)
    for site in rank.sites.values():
        if site.kind is Kind.OP:
            continue
        line = root
        for part in site.name.split("."):
            line = line.inside.setdefault(part, Line(part))
        line.kind, line.type = str(site.kind), site.type or line.type
        status = "bad" if site.id in bad or site.address in hit else "ok" if site.id in norms else "none"
        line.status = max(line.status, status, key=_WORSE.index)
        if site.role in (Role.OUT, Role.VALUE) and not site.index:
            line.shape = site.shape
            line.absmax = absmax.get(site.id, math.nan)
            line.history = norms.get(site.id, [])
    _nest(root, rank)
    _settle(root)
    return root


def _nest(root: Line, rank: Rank) -> None:
    """The root module adds nothing to the paths of what it holds: what no other root claims is inside it."""
    roots = [name for name in rank.facts.get("roots") or {} if name in root.inside]
    bare = next((name for name in roots if not root.inside[name].inside), None)
    if bare is None:
        return
    held = {name: line for name, line in root.inside.items() if name not in roots and line.kind != Kind.LOSS}
    root.inside[bare].inside = held
    root.inside = {name: line for name, line in root.inside.items() if name not in held}


def _settle(line: Line) -> str:
    for inner in line.inside.values():
        line.status = max(line.status, _settle(inner), key=_WORSE.index)
    return line.status


def _draw(line: Line, left: list[int], depth: int) -> str:
    left[0] -= 1
    if left[0] <= 0:
        return ""
    shape = "" if line.shape is None else "[" + ", ".join(map(str, line.shape)) + "]"
    largest = "" if math.isnan(line.absmax) else f"|x| ≤ {number(line.absmax)}"
    row = (
        mark(line.status)
        + tag("b" if line.inside else "span", text(line.name), class_="name")
        + tag("span", text(line.type), class_="dim")
        + tag("span", text(shape), class_="mono dim")
        + tag("span", text(largest), class_="mono dim right")
        + tag("span", sparkline(line.history), class_="trail")
    )
    if not line.inside:
        return tag("div", row, class_="leaf row")
    inner = "".join(_draw(child, left, depth + 1) for child in line.inside.values())
    opened = {"open": ""} if depth == 0 or (line.status == "bad" and depth < 2) else {}
    return tag("details", tag("summary", row, class_="row") + tag("div", inner, class_="inside"), **opened)
