"""The only place where training blocks.

The adapter asks at every point it passes, in the training thread: `gate.at(...)`. It asks only while
`gate.attentive` says that somebody wants to stop somewhere, so that a training that just runs pays one
attribute read. Another thread (a signal, an agent) may call `request_pause`, `request_pause_at` and `request_hold`, and nothing else.

Two questions decide a stop: the plan that came with the last resume (`step 3`, `next`, `until`, ...) and
the breakpoints. Conditions are the engine's business; the gate is told what hit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tensonde.errors import UsageError
from tensonde.model.site import Kind, Role, Site
from tensonde.model.stop import Breakpoint, Reason, Resume, Stop
from tensonde.watch.pattern import Pattern

Controller = Callable[[Stop], Resume]
"""Blocks in the training thread until the user says how to go on."""

_DEFAULT_ROLES = frozenset({Role.OUT, Role.GRAD, Role.VALUE})
"""Where a breakpoint without a role stops: where there is a result to look at."""


class Gate:
    """All methods belong to the training thread, except those whose names begin with `request`."""

    def __init__(self, controller: Controller | None = None) -> None:
        self.controller = controller
        self.plan = Resume()
        self.breakpoints: dict[int, Breakpoint] = {}
        self.stopped_ns = 0
        self.changed: Callable[[], None] = lambda: None
        self.trace_lent = False
        """The interpreter's trace function is somebody else's (pdb's): breakpoints on lines rest."""
        self._patterns: dict[int, Pattern] = {}
        self._matched: dict[tuple[int, int], bool] = {}
        self._until: Pattern | None = None
        self._scope: str | None = None
        self.light = False
        """The controller may be needed only much later: until somebody stops, nothing is kept for it, and a pause is at the end of a step."""
        self._looking = False
        self._pause = False
        self._pause_at: int | None = None
        self._pause_as: Reason = "pause"
        self.asked = False
        """A pause was asked for and has not come yet: nothing may rest."""
        self._next_id = 1

    # -- what the adapter reads ------------------------------------------------------------------

    @property
    def attentive(self) -> bool:
        """Somebody wants to stop at some module, op or gradient."""
        return self.controller is not None and (
            self.plan.kind in ("next", "nextop", "until", "finish")
            or any(point.sites for point in self.breakpoints.values())
        )

    @property
    def wants_ops(self) -> bool:
        """Somebody wants to stop at ops, not only at modules."""
        if self.controller is None:
            return False
        if self.plan.kind == "nextop" or (self._until is not None and "/" in str(self._until)):
            return True
        return any("/" in point.sites for point in self.breakpoints.values())

    @property
    def lines(self) -> tuple[Breakpoint, ...]:
        return () if self.trace_lent else tuple(point for point in self.breakpoints.values() if point.line)

    @property
    def keeping(self) -> bool:
        """The tensors of the current step are to be kept, so that a stop can show them."""
        if self.controller is None:
            return False
        return not self.light or self._looking or self.plan.kind != "continue" or self.attentive

    @property
    def pausing(self) -> bool:
        """A pause was asked for, maybe from a signal or another thread."""
        return self._pause

    # -- what the adapter asks -------------------------------------------------------------------

    def why(self, site: Site) -> tuple[Reason, int | None] | None:
        """The reason to stop at this site now, and the breakpoint it belongs to; None to go on."""
        if self._pause and not self.light:
            return "pause", None
        for point in self.breakpoints.values():
            if point.sites and not point.condition and self._matches(point, site):
                return "breakpoint", point.id
        kind = self.plan.kind
        at_module = site.kind is Kind.MODULE and site.role in _DEFAULT_ROLES
        if kind == "nextop" and (site.kind is Kind.OP or (at_module and site.role is Role.GRAD)):
            return "next", None
        if kind == "next" and at_module:
            return "next", None
        if kind == "until" and self._until is not None and self._until.matches(site) and self._fits(self._until, site):
            return "until", None
        if kind == "finish" and self._scope is not None:
            inside = site.name == self._scope or site.name.startswith((f"{self._scope}.", f"{self._scope}/"))
            if (site.role is Role.OUT and site.name == self._scope) or (site.role is Role.GRAD and not inside):
                return "finish", None
        return None

    def end_of_step(self, step: int = 0, *, quick: bool = False) -> Reason | None:
        """`step` is the one that begins now. With `quick` steps, a pause waits for one that is kept."""
        if self.controller is None:
            return None
        if self._pause_at is not None and step >= self._pause_at:
            return self._pause_as
        if self._pause and (self.keeping or not quick):
            return "pause"
        if self._pause or (self._pause_at is not None and step + 1 >= self._pause_at and not self.keeping):
            self._looking = True
            self.changed()
        if self.plan.kind == "step":
            if self.plan.count <= 1:
                return "step"
            self.plan = Resume("step", self.plan.count - 1)
        return None

    def stop(self, stop: Stop, clock: Callable[[], int]) -> Resume:
        """Blocks until the controller answers. The time spent here is not Tensonde's cost, nor the training's."""
        assert self.controller is not None
        self._pause = False
        if self._pause_at is not None and stop.moment.step >= self._pause_at:
            self._pause_at = None
        self.asked = self._pause_at is not None
        self.plan = Resume()
        self._looking = True
        if stop.breakpoint is not None:
            self._note(stop.breakpoint)
        began = clock()
        try:
            plan = self.controller(stop)
        finally:
            self.stopped_ns += clock() - began
        self.resume(plan, stop)
        return plan

    def resume(self, plan: Resume, stop: Stop) -> None:
        self.plan = plan
        self._looking = self._pause_at is not None and stop.moment.step + 1 >= self._pause_at
        self._until = Pattern.parse(plan.sites) if plan.kind == "until" else None
        self._scope = None
        if plan.kind == "finish":
            self._scope = stop.modules[-1] if stop.modules else (stop.site.name if stop.site else None)
            if self._scope is None:
                self.plan = Resume("step")
        self.changed()

    # -- what people change ----------------------------------------------------------------------

    def request_pause(self) -> None:
        """Stop at the next permitted point. Any thread, and signal handlers."""
        self._pause = self.asked = True

    def request_pause_at(self, step: int | None, reason: Reason = "pause") -> None:
        """Stop when that step begins, exactly there: so do all ranks of a run, and none waits for another in a collective.
        None takes the request back. Any thread."""
        self._pause_as = reason
        self._pause_at = step
        self.asked = self._pause or step is not None

    def request_hold(self, step: int) -> None:
        """Stop when the step after `step` begins, unless a stop before that is asked for already. Any thread."""
        if self._pause_at is None or self._pause_at > step + 1:
            self.request_pause_at(step + 1)

    def add_breakpoint(
        self, *, sites: str = "", file: str = "", line: int = 0, condition: str = "", once: bool = False
    ) -> Breakpoint:
        if bool(sites) == bool(line):
            raise UsageError(
                "a breakpoint needs a site or a FILE:LINE, e.g. `break blocks.3.attn` or `break train.py:42`."
            )
        point = Breakpoint(self._next_id, sites, file, line, condition, once)
        if sites:
            self._patterns[point.id] = Pattern.parse(sites)
        self._next_id += 1
        self.breakpoints[point.id] = point
        self.changed()
        return point

    def remove_breakpoint(self, id: int) -> bool:
        found = self.breakpoints.pop(id, None)
        self._patterns.pop(id, None)
        self._matched = {key: value for key, value in self._matched.items() if key[0] != id}
        self.changed()
        return found is not None

    def conditional(self, site: Site) -> Iterable[Breakpoint]:
        """Breakpoints with a condition that sit on this site."""
        return [
            point
            for point in self.breakpoints.values()
            if point.sites and point.condition and self._matches(point, site)
        ]

    def _note(self, id: int) -> None:
        point = self.breakpoints.get(id)
        if point is None:
            return
        if point.once:
            self.remove_breakpoint(id)
        else:
            object.__setattr__(point, "hit_count", point.hit_count + 1)

    def _matches(self, point: Breakpoint, site: Site) -> bool:
        key = (point.id, site.id)
        known = self._matched.get(key)
        if known is None:
            pattern = self._patterns[point.id]
            known = self._matched[key] = pattern.matches(site) and self._fits(pattern, site)
        return known

    @staticmethod
    def _fits(pattern: Pattern, site: Site) -> bool:
        return ":" in str(pattern) or site.role in _DEFAULT_ROLES
