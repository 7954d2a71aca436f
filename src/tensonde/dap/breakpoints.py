"""An editor's breakpoints as Tensonde's: lines and modules as breakpoints, values and NaN as watchpoints.

An editor sends all of a kind each time; what is gone is removed, what is new is set, at every rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tensonde.errors import TensondeError, UsageError
from tensonde.program.stopping import code_lines
from tensonde.protocol.client import Remote

Json = dict[str, Any]
FILTERS = (
    ("nan", "NaN", "nan", True),
    ("inf", "Inf", "inf", False),
)
"""Exception filters: name, label, condition on every site, whether it is on by default."""
RECOMMENDED = "recommended"
SITES = ("loss", "**:{out,grad}")


@dataclass(slots=True)
class Point:
    """One breakpoint of the editor, with its numbers at the ranks: (rank, kind of path, id)."""

    id: int
    wish: Json
    set: list[tuple[Remote, str, int]] = field(default_factory=list)
    problem: str = ""

    def out(self) -> Json:
        shown: Json = {"id": self.id, "verified": not self.problem}
        if self.problem:
            shown["message"] = self.problem
        if self.wish.get("line"):
            shown["line"] = self.wish["line"]
        return shown


class Breakpoints:
    """One thread at a time."""

    def __init__(self) -> None:
        self._known: dict[str, list[Point]] = {}
        self._next = 1
        self._disabled: list[tuple[Remote, int]] = []

    def replace(self, group: str, wishes: list[Json], places: list[Remote]) -> list[Json]:
        """`group` is what the editor sends at once: a file's lines, all functions, all data. In the editor's order."""
        for point in self._known.pop(group, []):
            _remove(point)
        made = [self._made(wish, places) for wish in wishes]
        self._known[group] = made
        return [point.out() for point in made]

    def _made(self, wish: Json, places: list[Remote]) -> Point:
        point = Point(self._next, wish)
        self._next += 1
        if wish.get("file"):
            point.wish = wish = {**wish, "line": next_code(wish["file"], wish["line"])}
        kind, body = request_of(wish)
        for place in places:
            try:
                answer = place.post(kind, **body)
                point.set.append((place, kind, int(answer["id"])))
                if (
                    kind == "watchpoints"
                    and not answer["matches"]
                    and wish["sites"] != "loss"
                    and not any(sign in wish["sites"] for sign in "*?{")
                ):
                    point.problem = f"no site {wish['sites']} was seen so far"
            except TensondeError as problem:
                point.problem = str(problem)
        return point

    def filters(self, names: list[str], places: list[Remote]) -> None:
        """Exception filters: NaN and Inf are watchpoints of ours, the recommended set is there already."""
        wishes = [
            {"sites": sites, "condition": condition}
            for name, _, condition, _ in FILTERS
            if name in names
            for sites in SITES
        ]
        self.replace("filters", wishes, places)
        for place in places:
            for point in place.get("watchpoints"):
                if point["origin"] == "recommended":
                    wanted = RECOMMENDED in names
                    place.client.put(
                        f"{place.path}/watchpoints/{point['id']}",
                        {"enabled": wanted, **({"action": "pause"} if wanted else {})},
                    )

    def hit(self, stop: Json, place: Remote) -> list[int]:
        """Which of the editor's breakpoints a stop is for."""
        wanted = {("breakpoints", stop["breakpoint"]), *(("watchpoints", hit["watchpoint"]) for hit in stop["hits"])}
        return [
            point.id
            for group in self._known.values()
            for point in group
            if any(one.path == place.path and (kind, id) in wanted for one, kind, id in point.set)
        ]

    def clear(self) -> None:
        for group in list(self._known):
            for point in self._known.pop(group):
                _remove(point)


def request_of(wish: Json) -> tuple[str, Json]:
    """`breakpoints` or `watchpoints`, and what to post there. A condition on a tensor is a watchpoint's business."""
    if wish.get("file"):
        return "breakpoints", {"file": wish["file"], "line": wish["line"], "condition": wish.get("condition") or ""}
    if wish.get("condition"):
        return "watchpoints", {"sites": wish["sites"], "condition": wish["condition"], "action": "pause"}
    return "breakpoints", {"sites": wish["sites"]}


def next_code(file: str, line: int) -> int:
    """The first line from there on that has code, as editors expect of a breakpoint on a comment."""
    return min((one for one in code_lines(file) if one >= line), default=line)


def data_wish(given: Json) -> Json:
    """A data breakpoint: a tensor's address, and when to stop. Raises UsageError."""
    address = str(given.get("dataId") or "")
    if not address:
        raise UsageError("a data breakpoint needs a tensor; choose one in the Variables view.")
    return {"sites": address, "condition": given.get("condition") or "nan or inf"}


def _remove(point: Point) -> None:
    for place, kind, id in point.set:
        try:
            place.client.delete(f"{place.path}/{kind}/{id}")
        except TensondeError:  # it is over, or somebody else has removed it
            continue
