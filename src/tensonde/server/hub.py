"""The hub itself: recordings and live sessions as one list of runs."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from pathlib import Path
from typing import Any

from tensonde.protocol import messages
from tensonde.protocol.codec import encode
from tensonde.server.group import Group
from tensonde.server.library import Library, RecordedRun
from tensonde.server.live import LiveRank, Send
from tensonde.server.onlookers import TICK, Gallery, Key
from tensonde.server.onlookers import encode as text_of
from tensonde.server.place import Place
from tensonde.server.refusals import NotFound
from tensonde.server.states import live_state, recorded_run, run_word, sketch
from tensonde.store.codec import finding_out
from tensonde.store.files import plain
from tensonde.store.format import FINDINGS
from tensonde.store.liveness import machine

Json = dict[str, Any]
RUNS_EVERY = 0.25
FORGET_SECONDS = 600.0
"""A session that has gone and left a recording needs no second place after so long."""
ACTING_SECONDS = 60.0
"""Whoever has acted by a request looks on for so long."""


class Hub:
    """`runs` and `place` may be called in any thread; the rest is the event loop's."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.gallery = Gallery()
        self._live: dict[Key, LiveRank] = {}
        self._groups: dict[str, Group] = {}
        self._recorded: dict[str, tuple[Any, Json]] = {}
        self._acted = float("-inf")
        self._clients = 0
        self._runs_changed = True
        self._task: asyncio.Task[None] | None = None

    # -- reading ---------------------------------------------------------------------------------

    def runs(self) -> list[Json]:
        """Newest first. A rank whose agent is there is not looked up on the disk."""
        ranks: dict[str, dict[str, LiveRank]] = {}
        for (id, name), live in list(self._live.items()):
            self.gallery.count(live)
            ranks.setdefault(id, {})[name] = live
        found = {id: self._of_recording(id, run, ranks.get(id, {})) for id, run in self.library.runs().items()}
        for id, here in ranks.items():
            entry = found.get(id) or _of_agent(id, next(iter(here.values())))
            known = {rank["name"]: rank for rank in entry["ranks"]}
            for name, live in here.items():
                state = live_state(live, known.get(name))
                known[name] = {**state, "loss": state["loss"] or sketch(live.scalars())}
            entry["ranks"] = sorted(known.values(), key=lambda rank: (rank["rank"], rank["name"]))
            entry["framework"] = entry["framework"] or next(iter(here.values())).facts.get("framework")
            entry["state"] = run_word(entry["ranks"])
            found[id] = entry
        return sorted(found.values(), key=lambda run: run["started"] or "", reverse=True)

    def _of_recording(self, id: str, run: RecordedRun, here: dict[str, LiveRank]) -> Json:
        """A run that is over is looked at again only when its files have changed."""
        told = frozenset(name for name, live in here.items() if live.connected)
        stamp = (told, run.stamp())
        known = self._recorded.get(id)
        if known is None or known[0] != stamp or known[1]["state"] == "live":
            known = self._recorded[id] = (stamp, recorded_run(id, run, without=told))
        return dict(known[1])

    def place(self, run: str, rank: str) -> Place:
        """Raises NotFound."""
        found = self.library.run(run)
        live = self._live.get((run, rank))
        recorded = found.ranks.get(rank) if found is not None else None
        if recorded is None and live is None:
            if found is None and not any(key[0] == run for key in self._live):
                raise NotFound(f"there is no run {run!r} here; GET /api/runs lists them.")
            known = sorted(
                {*(found.ranks if found is not None else ()), *(key[1] for key in self._live if key[0] == run)}
            )
            raise NotFound(f"the run {run} has no rank {rank!r}; it has {', '.join(known) or 'none so far'}.")
        return Place(run, rank, recorded, live)

    def ranks_of(self, run: str) -> list[LiveRank]:
        """Those whose agents are there."""
        return [live for key, live in self._live.items() if key[0] == run and live.connected and not live.finished]

    def group(self, run: str) -> Group:
        """The ranks of a run that are bound to each other, to steer them as one."""
        if run not in self._groups:
            self._groups[run] = Group(lambda: [live for live in self.ranks_of(run) if live.bound])
        return self._groups[run]

    def live_at(self, key: Key) -> LiveRank | None:
        return self._live.get(key)

    def state_of(self, live: LiveRank) -> Json:
        self.gallery.count(live)
        return live_state(live, None)

    # -- agents ----------------------------------------------------------------------------------

    def welcome(self, hello: messages.Hello, send: Send) -> LiveRank:
        """An agent has called, for the first time or again."""
        run = self._run_of(hello)
        key = (run, hello.rank_name)
        live = self._live.get(key)
        if live is None or live.session != hello.session:
            live = self._live[key] = LiveRank(run, hello, asyncio.get_running_loop())
        live.attach(send, hello)
        self._runs_changed = True
        return live

    def _run_of(self, hello: messages.Hello) -> str:
        """The recording's id where this hub can read it, so that both are one run."""
        if hello.machine == machine() and hello.path:
            id = self.library.announce(Path(hello.path).parent)
            if id is not None:
                return id
        return re.sub(r"[^\w.-]", "-", hello.run)[:100] or "run"

    def hear(self, live: LiveRank, message: messages.FromAgent) -> None:
        behind = live.behind
        change = live.take(message)
        if change is not None:
            self.took(live, change)
        if behind and not live.behind:
            self.took(live, {"type": "state"})  # now it is known what it does

    def took(self, live: LiveRank, change: Json) -> None:
        """An agent has said something new."""
        if change["type"] not in ("digests", "scalars") and not (change["type"] == "state" and live.word == "running"):
            self._runs_changed = True
        if change["type"] == "stop" and not change.pop("old"):
            self.group(live.run).stopped(live)
        needs_state = change["type"] in ("state", "stop")
        self.gallery.changed(live, change, self.state_of(live) if needs_state else {})

    def left(self, live: LiveRank, send: Send) -> None:
        live.detach(send)
        self._runs_changed = True
        self.gallery.changed(live, {"type": "state"}, self.state_of(live))

    # -- people ----------------------------------------------------------------------------------

    @property
    def clients(self) -> int:
        acting = time.monotonic() - self._acted < ACTING_SECONDS
        return len(self.gallery.onlookers) + (1 if acting else 0)

    async def acting(self) -> None:
        """Somebody has asked for something to be done."""
        self._acted = time.monotonic()
        await self.tell_clients()

    async def tell_clients(self) -> None:
        """Agents stop for hits only while somebody is there."""
        if self.clients == self._clients:
            return
        self._clients = self.clients
        frame = encode(messages.Clients(count=self._clients))
        for live in list(self._live.values()):
            await live.send(frame)

    # -- time ------------------------------------------------------------------------------------

    def start(self) -> None:
        """When the loop runs."""
        if self._task is None:
            self._task = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        last: Any = None
        runs_at = 0.0
        while True:
            await asyncio.sleep(TICK)
            self.gallery.tick()
            now = time.monotonic()
            if now - runs_at >= RUNS_EVERY and self.gallery.onlookers:
                runs_at = now
                if self._runs_changed or int(now) % 5 == 0:
                    self._runs_changed = False
                    runs = await asyncio.to_thread(self.runs)
                    essence = [_essence(run) for run in runs]
                    if essence != last:
                        last = essence
                        self.show_runs(runs)
            self._tell_graphs()
            self._forget(now)
            for group in list(self._groups.values()):
                group.watch_time()
            for live in list(self._live.values()):
                if live.finished and not live.diagnosed:
                    self._tell_findings(live)
            with contextlib.suppress(Exception):
                await self.tell_clients()

    def _tell_graphs(self) -> None:
        """Traces and compiled graphs are files that the training writes when it has them."""
        for live in list(self._live.values()):
            key = (live.run, live.name)
            run = self.library.run(live.run) if self.gallery.looking_at(key) else None
            rank = run.known(live.name) if run is not None else None
            stamp = rank.graph_stamp() if rank is not None else None
            if stamp is not None and stamp != live.graph_stamp:
                live.graph_stamp = stamp
                self.gallery.tell(key, {"type": "graph"})

    def _tell_findings(self, live: LiveRank) -> None:
        """The diagnosis of a run that has ended is written a moment later."""
        run = self.library.run(live.run)
        rank = run.ranks.get(live.name) if run is not None else None
        if rank is not None and (rank.folder / FINDINGS).exists():
            live.diagnosed = True
            self._runs_changed = True
            for finding in rank.findings:
                self.gallery.tell((live.run, live.name), {"type": "finding", "finding": plain(finding_out(finding))})

    def show_runs(self, runs: list[Json]) -> None:
        text = text_of({"type": "runs", "runs": runs})
        for one in self.gallery.onlookers:
            one.show("runs", ("", ""), text)

    def _forget(self, now: float) -> None:
        for key, live in list(self._live.items()):
            if not live.connected and now - live.seen_at > FORGET_SECONDS and self.library.run(key[0]) is not None:
                del self._live[key]
                if not any(other[0] == key[0] for other in self._live):
                    self._groups.pop(key[0], None)


def _essence(run: Json) -> Any:
    """What makes a list of runs worth sending again: not each step."""
    return run["id"], run["state"], [
        (rank["name"], rank["state"], rank["connected"], rank["hits"], rank["findings"], (rank["stop"] or {}).get("step"))
        for rank in run["ranks"]
    ]  # fmt: skip


def _of_agent(id: str, live: LiveRank) -> Json:
    """A run whose recording this hub cannot read."""
    hello = live.hello
    return {
        "id": id, "name": hello.name, "script": hello.script or None, "framework": live.facts.get("framework"),
        "started": hello.started or None, "state": "live", "path": None, "ranks": [],
    }  # fmt: skip
