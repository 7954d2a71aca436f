"""One training process under Tensonde: sites, digests, hits, steps, recording, and the way to the gate.

Every method is called by the training thread. The adapter calls in; nothing here knows a framework:
tensors are opaque and go to the digest block as they are.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tensonde.digest import ROW, Block
from tensonde.digest.layout import of_one
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Part, Role, Site, SourceLine
from tensonde.model.stop import Stop
from tensonde.model.watchpoint import Action, Hit, Watchpoint
from tensonde.session.division import divided_by
from tensonde.session.gate import Gate
from tensonde.session.guard import Guard
from tensonde.session.options import Options
from tensonde.session.policy import UNSEEN, Policy
from tensonde.session.steps import Steps
from tensonde.store.collectives import CollectivesFile
from tensonde.store.format import FAILURES
from tensonde.store.whereabouts import WhereaboutsFile
from tensonde.store.writer import RecordingWriter
from tensonde.watch.announcing import announcement
from tensonde.watch.engine import Engine
from tensonde.watch.parse import watchpoint as parse_watchpoint
from tensonde.watch.pattern import Pattern
from tensonde.watch.recommended import recommended
from tensonde.watch.suggest import nearest

log = logging.getLogger("tensonde.session")
watch_log = logging.getLogger("tensonde.watch")

CAPACITY = 16384
FLUSH_NS = 500_000_000
FLUSH_SHARE = 400
"""What is observed is written every half second, or less often where writing would take more than this fraction of the time."""

LATEST = 16
"""Steps after which the digests of a device have arrived."""


class StopTraining(SystemExit):
    """Ends the training cleanly: the script's own `finally` blocks run, and no traceback is printed."""


class Session:
    def __init__(self, options: Options, folder: Path, facts: Mapping[str, Any], *, rank: int = 0) -> None:
        self.options = options
        self.rank = rank
        self.world = int(facts.get("world_size") or 1)
        """How many ranks the training has."""
        self.writer = RecordingWriter(
            folder, dict(facts), table_bytes=options.table_bytes, compact=not options.supervised
        )
        self.whereabouts = WhereaboutsFile(folder)
        self.collectives = CollectivesFile(folder)
        self.guard = Guard(self.writer.event, folder / FAILURES)
        self.steps = Steps()
        self.policy = Policy(options.budget, watched=bool(options.watches))
        self.gate = Gate()
        self.block = Block(CAPACITY)
        self.block.on_nonfinite = self._nonfinite
        self.block.on_full = self.flush
        self.rows: np.ndarray[Any, Any] = np.frombuffer(memoryview(self.block), ROW)
        self.sites: list[Site] = []
        self.site_ids: dict[tuple[str, Role, int | None], int] = {}
        self.engine = Engine(self._initial_watchpoints(), rank=rank)
        self.immediate: set[int] = set()
        """Sites whose hits must act at once: the user asked to stop or pause there."""
        self.hit_count = 0
        self.hits: deque[Hit] = deque(maxlen=100)
        """The latest; all of them are in the recording."""
        self.cost_ns = 0
        """Time spent in Tensonde that the block does not count by itself."""
        self.on_stop: Callable[[Stop], None] = lambda stop: None
        self.capture: Callable[[Site, Any, Moment], None] = lambda site, tensor, moment: None
        self.settle: Callable[[], object] = lambda: None
        """Waits for digests that a device computes, and hands them to `late`."""
        self.on_nonfinite: Callable[[int], None] = lambda site: None
        """Told of every digest with NaN or Inf, at once."""
        self.on_late: Callable[[np.ndarray[Any, Any]], None] = lambda rows: None
        """Told of digests that came late: those of a device, mostly one step after their own."""
        self.on_step: Callable[[], None] = lambda: None
        """Between two steps, where what others have asked for can be done."""
        self._evaluated = 0
        self._mark = 0
        self._last_flush = self._step_began = time.perf_counter_ns()
        self._clock: Callable[[], Any] = time.process_time_ns
        self._cpu_began = self._clock()
        self._began, self._stopped_ns = self._step_began, 0
        self._first_ns = 0
        self._extra: list[int] = []
        """Steps that were traced or run again, by how long they took."""
        self.experiments_seconds = 0.0
        """Processor time that experiments have taken; it is part of what the steps took that are not counted."""
        self._flush_ns = FLUSH_NS
        self._settled: tuple[int, Any] = (0, 0)
        self._accounted = 0
        self.ended: str | None = None
        """Why the training is to end before its program would end it."""
        self._captured: set[tuple[int, int]] = set()
        self._went_nonfinite: set[int] = set()
        self._announced: set[int] = set()
        self._skip_timing = True
        self._loss_ids: set[int] = set()
        self._divided: dict[int, int] = {}
        """By step, since the last flush: what its losses were divided by, one for each micro-batch."""
        self._usual = 1
        log.info("recording to %s, budget %s, %d watchpoints", folder, options.budget, len(self.engine.watchpoints))

    def _initial_watchpoints(self) -> list[Watchpoint]:
        points: list[Watchpoint] = []
        for sites, condition, action in self.options.watches:
            points.append(parse_watchpoint(f"{sites} {condition}", id=len(points) + 1, action=action))
        if self.options.recommended:
            action = "pause" if self.options.debug else self.options.on_hit
            points += recommended(first_id=len(points) + 1, action=action)
        return points

    # -- sites -----------------------------------------------------------------------------------

    def site(
        self,
        name: str,
        role: Role,
        kind: Kind,
        *,
        index: int | None = None,
        type: str = "",
        trainable: bool | None = None,
        shape: tuple[int, ...] = (),
        dtype: str = "",
        source: SourceLine | None = None,
        part: Part | None = None,
        device: str = "",
    ) -> int:
        """The id of a site, which is registered when it is new."""
        key = (name, role, index)
        known = self.site_ids.get(key)
        if known is not None:
            return known
        site = Site(len(self.sites), name, role, kind, index, type, trainable, shape, dtype, source, part, device)
        self.sites.append(site)
        self.site_ids[key] = site.id
        self.engine.add_site(site)
        if kind is Kind.LOSS and role is Role.VALUE:
            self._loss_ids.add(site.id)
        self._refresh_immediate(site)
        try:
            self.writer.site(site)
        except Exception as problem:
            self.guard.contain("writing the recording", problem)
        return site.id

    def _refresh_immediate(self, site: Site) -> None:
        if any(point.action != "report" for point in self.engine.watchers(site, "user")):
            self.immediate.add(site.id)
        else:
            self.immediate.discard(site.id)

    def user_watched(self, site: Site) -> bool:
        return bool(self.engine.watchers(site, "user"))

    @property
    def has_user_watchpoints(self) -> bool:
        return any(point.origin == "user" for point in self.engine.watchpoints)

    # -- watchpoints -----------------------------------------------------------------------------

    def watch(self, sites: str, condition: str, action: Action | None = None) -> Watchpoint:
        """Takes effect from now on: what was observed before is evaluated first."""
        self.evaluate()
        used = [point.id for point in self.engine.watchpoints]
        point = parse_watchpoint(
            f"{sites} {condition}", id=max(used, default=0) + 1, action=action or self.options.on_hit
        )
        self.engine.add(point)
        watch_log.info("watchpoint %d: %s", point.id, point)
        self._watchpoints_changed()
        return point

    def arm(self, point: Watchpoint) -> None:
        """The same for a watchpoint that has its number already, in place of the one that had it."""
        self.evaluate()
        if any(known.id == point.id for known in self.engine.watchpoints):
            self.engine.remove(point.id)
        self.engine.add(point)
        self._watchpoints_changed()

    def unwatch(self, id: int) -> None:
        self.engine.remove(id)
        self._watchpoints_changed()

    def _watchpoints_changed(self) -> None:
        for site in self.sites:
            self._refresh_immediate(site)
        self.gate.changed()

    # -- observations ----------------------------------------------------------------------------

    def observe(self, site: int, tensor: Any, call: int = 0) -> int:
        """Digests one tensor, and acts at once if a watchpoint there asks for it. The row's index, or -1."""
        row = self.block.add(site, tensor, call)
        if row >= 0 and site in self.immediate:
            self.evaluate(tensor)
        return row

    def _nonfinite(self, site: int, row: int, tensor: Any) -> None:
        """Called by the block right after a digest with NaN or Inf, while the tensor is at hand; once a site is enough."""
        self.on_nonfinite(site)
        if site not in self._went_nonfinite:
            self._went_nonfinite.add(site)
            try:
                self.evaluate(tensor)
            except Exception as problem:
                self.guard.contain("evaluating watchpoints", problem)

    def late(self, rows: np.ndarray[Any, Any]) -> None:
        """Digests of a device have arrived, with the steps, phases and calls of then."""
        for begin in range(0, len(rows), CAPACITY // 4):
            some = rows[begin : begin + CAPACITY // 4]
            if len(self.block) + len(some) > CAPACITY:
                self.flush()
            first = len(self.block)
            for _ in some:
                self.block.reserve(0)
            self.rows[first : first + len(some)] = some
        bad = rows[(rows["nan"] > 0) | (rows["pos_inf"] > 0) | (rows["neg_inf"] > 0)]
        sites = set(bad["site"].tolist())
        if not sites <= self._went_nonfinite:
            self._went_nonfinite |= sites
            try:
                self.evaluate()
            except Exception as problem:
                self.guard.contain("evaluating watchpoints", problem)
        self.on_late(rows)

    def found_nonfinite(self, site: int) -> None:
        """A digest that was computed elsewhere has NaN or Inf."""
        self.on_nonfinite(site)
        self._went_nonfinite.add(site)

    def note(self, kind: str, **fields: Any) -> None:
        """Adds an event to the recording."""
        try:
            self.writer.event(kind, **fields)
        except Exception as problem:
            self.guard.contain("writing the recording", problem)

    def evaluate(self, tensor: Any = None) -> list[Hit]:
        """Brings the engine up to date and acts on what hit. `tensor` is the one of the newest row."""
        began = time.perf_counter_ns()
        end = len(self.block)
        rows = self.rows[self._evaluated : end]
        self._evaluated = end
        hits = self.engine.evaluate(rows) if len(rows) else []
        if hits:
            newest = self.sites[int(rows[-1]["site"])]
            for hit in hits:
                self._take(hit, newest, tensor)
        self.cost_ns += time.perf_counter_ns() - began
        acting = [hit for hit in hits if self._action(hit) != "report"]
        if acting:
            self._act(acting, tensor)
        return hits

    def _take(self, hit: Hit, newest: Site, tensor: Any) -> None:
        self.hit_count += 1
        self.hits.append(hit)
        try:
            self.writer.hit(hit)
        except Exception as problem:
            self.guard.contain("writing the recording", problem)
        if hit.watchpoint not in self._announced and not self.options.quiet:
            self._announced.add(hit.watchpoint)
            log.warning("%s", announcement(hit))
        else:
            watch_log.debug("hit: %s %s at step %d", hit.site, hit.condition, hit.moment.step)
        key = (hit.watchpoint, newest.id)
        if tensor is not None and newest.address == hit.site and key not in self._captured:
            self._captured.add(key)
            try:
                self.capture(newest, tensor, hit.moment)
            except Exception as problem:
                self.guard.contain("keeping a tensor", problem)

    def _action(self, hit: Hit) -> str:
        for point in self.engine.watchpoints:
            if point.id == hit.watchpoint:
                return point.action
        return "report"

    def _act(self, hits: list[Hit], tensor: Any) -> None:
        if any(self._action(hit) == "stop" for hit in hits):
            self.end(f"watchpoint hit at {hits[0].site}", code=1)
        if self.gate.controller is not None:
            row = self.rows[self._evaluated - 1]
            site = self.sites[int(row["site"])]
            moment = Moment(int(row["step"]), Phase(int(row["phase"])), int(row["call"]))
            at_site = any(hit.site == site.address for hit in hits)
            self.on_stop(Stop("hit", moment, site if at_site else None, tensor if at_site else None, hits=tuple(hits)))

    def end(self, why: str, code: int = 0) -> None:
        """Ends the training cleanly, from a hook in the training thread."""
        self.ended = why
        log.warning("ending the training: %s", why)
        raise StopTraining(code)

    # -- time ------------------------------------------------------------------------------------

    @property
    def moment(self) -> Moment:
        return Moment(self.steps.step, Phase(self.block.phase))

    def mark(self) -> None:
        """The step may turn out to have ended here (see `steps.py`)."""
        self._mark = len(self.block)

    def since_mark(self) -> np.ndarray[Any, Any]:
        """The rows since then, to be corrected in place."""
        rows: np.ndarray[Any, Any] = self.rows[self._mark : len(self.block)]
        return rows

    def finish_step(self, *, behind: bool = False, scalars: Mapping[str, float] | None = None) -> None:
        """The step is over; `behind`: it was over at the last mark, and what came since belongs to the next."""
        now, cpu = time.perf_counter_ns(), self._clock()
        step = self.steps.step
        if behind:
            late = self.since_mark()["step"]
            late += late == step  # of a device, some may be older
        wall = now - self._step_began - self.gate.stopped_ns
        cost = self.block.nanos + self.cost_ns - self._accounted
        counted = not self._skip_timing and self.gate.stopped_ns == 0
        self.policy.finish_step(wall, cost, cpu_ns=cpu - self._cpu_began, counted=counted)
        if step == 0:
            self._first_ns = wall
        elif self._skip_timing and not self.gate.stopped_ns:
            self._extra.append(wall)
        self._skip_timing = False
        self._stopped_ns += self.gate.stopped_ns
        self.gate.stopped_ns = 0
        self._accounted = self.block.nanos + self.cost_ns
        self._step_began, self._cpu_began = now, cpu
        try:
            self.writer.scalars(step, {"step_seconds": wall * 1e-9, **(scalars or {})})
            if step == 0:
                self.writer.flush()  # a process that is killed early leaves what its model is
        except Exception as problem:  # the step counts, whatever becomes of its numbers
            self.guard.contain("writing the recording", problem)
        self.steps.advance()
        self.steps.begun = behind
        self.block.step = self.steps.step
        self.whereabouts.step(self.steps.step)
        if step == 0 and self.rank == 0:
            self._warn_of_idle_watchpoints()
        if len(self.block) > CAPACITY // 2 or now - self._last_flush > self._flush_ns:
            self.flush()
        self.on_step()

    def on_device(self, clock: Callable[[], Any]) -> None:
        """The training runs on a device: what a step costs is not the time of this processor, but that of the device. The difference of
        two of the clock's times is a `Lapse`."""
        if self._clock is not clock:
            self._clock = clock
            self._cpu_began = clock()
            self.uncounted()

    def rest_begins(self) -> None:
        """Tensonde is out of the training's way: from here on its steps are bare."""
        now, cpu = time.perf_counter_ns(), self._clock()
        self.policy.tail(cpu - self._cpu_began)
        self._step_began, self._cpu_began, self._settled = now, cpu, (0, 0)

    def settled(self, steps: int) -> None:
        """So many bare steps have run since then: those that pay for cold caches."""
        self._settled = steps, self._clock() - self._cpu_began

    def rested(self, steps: int) -> None:
        """So many steps have run since then; `steps.py` has counted them."""
        now, cpu = time.perf_counter_ns(), self._clock()
        first, first_ns = self._settled if steps > self._settled[0] else (0, 0)
        if steps:
            self.policy.rested(steps, now - self._step_began, cpu - self._cpu_began, first=first, first_ns=first_ns)
        self._step_began, self._cpu_began = now, cpu
        self.block.step = self.steps.step
        if now - self._last_flush > self._flush_ns:
            self.flush()

    def _warn_of_idle_watchpoints(self) -> None:
        """After the first step most sites are known: a pattern that matches none of them is probably misspelt."""
        addresses = [site.address for site in self.sites]
        for point in self.engine.watchpoints:
            pattern = Pattern.parse(point.sites)
            if point.origin == "user" and not any(pattern.matches(site) for site in self.sites):
                close = nearest(point.sites, addresses)
                hint = f"the nearest are {', '.join(close)}" if close else "`tensonde show` lists the sites"
                log.warning("the watchpoint %r matches no site so far; %s", str(point), hint)

    def clock(self) -> tuple[int, int]:
        """A mark for `spent_since`: the time, and what is accounted for so far."""
        return time.perf_counter_ns(), self.block.nanos + self.cost_ns

    def spent_since(self, mark: tuple[int, int]) -> None:
        """All the time since the mark was Tensonde's; what was accounted for meanwhile is not counted twice."""
        began, accounted = mark
        elapsed = time.perf_counter_ns() - began
        self.cost_ns += max(0, elapsed - (self.block.nanos + self.cost_ns - accounted))

    def uncounted(self) -> None:
        """The time of this step says nothing: it was traced or run again."""
        self._skip_timing = True

    def flush(self) -> None:
        """Evaluates and writes what the block holds, and empties it."""
        began, busy = time.perf_counter_ns(), time.thread_time_ns()
        counted = self.cost_ns
        try:
            rows = self.rows[: len(self.block)]
            if len(rows):
                self.evaluate()
                self._write(rows)
        except Exception as problem:
            self.guard.contain("writing the recording", problem)
        finally:
            self.block.clear()
            self._evaluated = self._mark = 0
            self._last_flush = time.perf_counter_ns()
            self.cost_ns = counted + self._last_flush - began
            busy = time.thread_time_ns() - busy
            self._cpu_began += busy  # a step in some hundred: no part of its time
            self.policy.rare(busy)
            self._flush_ns = min(max(FLUSH_NS, FLUSH_SHARE * busy), 10 * FLUSH_NS)

    def losses_divided(self, products: list[list[int]]) -> None:
        """At the end of a step: the products of `divisions` of each of its losses. With one optimizer, several losses that
        were each divided by their number are micro-batches, and the recording shows them as the criterion gave them."""
        found = divided_by(products, self._usual) if self.steps.optimizers == 1 else 1
        self._usual = self._divided[self.steps.step] = found

    def losses(self, rows: np.ndarray[Any, Any]) -> Iterator[tuple[int, float]]:
        """The losses among these rows, each with its step."""
        for loss in self._loss_ids:
            for row in rows[rows["site"] == loss]:
                step = int(row["step"])
                value = float(of_one(row.__getitem__)) if row["count"] == 1 else float("nan")
                yield step, value * self._divided.get(step, self._usual)

    def _write(self, rows: np.ndarray[Any, Any]) -> None:
        for step, loss in self.losses(rows):
            self.writer.scalars(step, {"loss": loss})
        self._divided = {step: found for step, found in self._divided.items() if step >= self.steps.step - LATEST}
        self.writer.digests(rows)

    def overhead(self) -> dict[str, Any]:
        """What Tensonde has cost, and how that is known."""
        policy = self.policy
        measured = policy.measured
        bare = policy.costs.bare or policy.bare_ns / max(1, policy.counted)
        early = max(0.0, policy.early_ns - policy.early * bare) if measured else UNSEEN * policy.cost_ns
        early += sum(max(0.0, wall - bare) for wall in (self._first_ns, *self._extra))
        return {
            "ratio": round(policy.ratio, 4),
            "budget": self.options.budget,
            "measured": measured is not None,
            "uncertainty": round(measured[1], 4) if measured else None,
            "steps_measured": policy.counted,
            "ms_per_step": round((policy.ratio - 1) * bare * 1e-6, 4),
            "bare_ms_per_step": round(bare * 1e-6, 4),
            "first_step_seconds": round(self._first_ns * 1e-9, 4),
            "start_seconds": round(early * 1e-9, 4),
            "experiments_seconds": round(self.experiments_seconds, 4),
            "seconds": round((time.perf_counter_ns() - self._began - self._stopped_ns) * 1e-9, 4),
            "levels": {level.name.lower(): count for level, count in policy.taken.items()},
        }

    def close(self, *, exit: Mapping[str, Any], coverage: Mapping[str, Any]) -> None:
        self.gate.controller = None
        if self.steps.before_forward():  # without an optimizer, only the next forward would have ended the last step
            self.steps.advance()
        try:
            self.settle()
        except Exception as problem:  # of a device that has failed, say
            self.guard.contain("waiting for digests", problem)
        self.flush()
        self.writer.close(
            {
                "exit": dict(exit),
                "steps": self.steps.step,
                "ended": self.ended,
                "hits": self.hit_count,
                "hits_suppressed": sum(self.engine.suppressed.values()),
                "watchpoints": [asdict(point) for point in self.engine.watchpoints],
                "overhead": self.overhead(),
                "coverage": dict(coverage),
                "failures": dict(self.guard.failures),
            }
        )
