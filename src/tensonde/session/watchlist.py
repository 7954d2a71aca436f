"""The watchpoints as others want them. Any thread may change the list; the training thread brings the engine in line with it between two steps."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, replace
from typing import Any

from tensonde.errors import UsageError
from tensonde.model.watchpoint import Action, Watchpoint
from tensonde.session.session import Session
from tensonde.watch.parse import watchpoint as parse_watchpoint
from tensonde.watch.recommended import recommended


@dataclass(slots=True)
class Wanted:
    point: Watchpoint
    enabled: bool = True

    def out(self) -> dict[str, Any]:
        return {**asdict(self.point), "enabled": self.enabled}


class Watchlist:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._applied = {point.id: point for point in session.engine.watchpoints}
        self._wanted = {id: Wanted(point) for id, point in self._applied.items()}
        self._largest = max(self._wanted, default=0)
        self.changed = False

    # -- any thread ------------------------------------------------------------------------------

    def shown(self) -> list[dict[str, Any]]:
        with self._lock:
            return [wanted.out() for wanted in self._wanted.values()]

    def add(self, sites: str, condition: str, action: Action) -> dict[str, Any]:
        """Raises SyntaxProblem."""
        with self._lock:
            point = parse_watchpoint(f"{sites} {condition}", id=self._largest + 1, action=action)
            return self._put(point).out()

    def change(self, id: int, given: dict[str, Any]) -> dict[str, Any]:
        """Raises UsageError for a number that there is not, and SyntaxProblem."""
        with self._lock:
            wanted = self._find(id)
            old = wanted.point
            sites, condition = given.get("sites") or old.sites, given.get("condition") or old.condition
            new = old
            if (sites, condition) != (old.sites, old.condition):
                new = parse_watchpoint(f"{sites} {condition}", id=id, action=old.action)
            wanted.point = replace(new, action=given.get("action") or old.action)
            if given.get("enabled") is not None:
                wanted.enabled = bool(given["enabled"])
            self.changed = True
            return wanted.out()

    def remove(self, id: int) -> None:
        with self._lock:
            self._find(id)
            del self._wanted[id]
            self.changed = True

    def recommend(self) -> list[dict[str, Any]]:
        """The default set, without what is there already. What was added."""
        with self._lock:
            there = {(wanted.point.sites, wanted.point.condition) for wanted in self._wanted.values()}
            new = [p for p in recommended(self._largest + 1) if (p.sites, p.condition) not in there]
            return [self._put(replace(point, id=self._largest + 1)).out() for point in new]

    def _put(self, point: Watchpoint) -> Wanted:
        self._largest = point.id
        wanted = self._wanted[point.id] = Wanted(point)
        self.changed = True
        return wanted

    def _find(self, id: int) -> Wanted:
        if id not in self._wanted:
            raise UsageError(f"there is no watchpoint {id}; there are: {', '.join(map(str, self._wanted)) or 'none'}.")
        return self._wanted[id]

    # -- the training thread ---------------------------------------------------------------------

    def take_over(self) -> None:
        """What the training thread itself has changed meanwhile (`tensonde.watch`, the debugger's `watch`) is wanted, too."""
        with self._lock:
            now = {point.id: point for point in self._session.engine.watchpoints}
            for id, point in now.items():
                if id not in self._applied:
                    self._wanted[id] = Wanted(point)
                    self._largest = max(self._largest, id)
            for id in set(self._applied) - set(now):
                if id in self._wanted and self._wanted[id].enabled:
                    del self._wanted[id]
            self._applied = now

    def apply(self) -> None:
        """May stop the training, as the engine is brought up to date first."""
        self.take_over()
        with self._lock:
            self.changed = False
            goal = {id: wanted.point for id, wanted in self._wanted.items() if wanted.enabled}
            before = dict(self._applied)
            self._applied = goal
        for id in before.keys() - goal.keys():
            self._session.unwatch(id)
        for id, point in goal.items():
            if before.get(id) != point:
                self._session.arm(point)
