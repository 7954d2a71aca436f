"""Live sessions: one for each rank whose agent has called, also while it is away.

Everything here happens in the hub's event loop, except where it says "any thread".
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from tensonde.digest.layout import ROW
from tensonde.model.site import Site
from tensonde.model.watchpoint import Hit
from tensonde.protocol import messages
from tensonde.protocol.codec import BadFrame, encode
from tensonde.server.livestore import LiveStore
from tensonde.server.refusals import AgentGone, NotNow, Refusal
from tensonde.store.codec import hit_in, site_in

log = logging.getLogger("tensonde.hub")

MOST_HITS = 100_000
MOST_EVENTS = 10_000
MOST_SITES = 1_000_000
ANSWER_SECONDS = 30.0
ACK_EVERY = 0.1
Json = dict[str, Any]
Array = np.ndarray[Any, Any]
Send = Callable[[bytes], Awaitable[None]]


def word_of_end(exit: Json, ended: object) -> str:
    """How a session that was closed has ended: by itself, by an exception of the program, or because somebody asked for it."""
    return "terminated" if ended else "failed" if exit.get("exception") else "finished"


class LiveRank:
    """What the agent of one rank has said, and the way to ask it."""

    def __init__(self, run: str, hello: messages.Hello, loop: asyncio.AbstractEventLoop) -> None:
        self.run, self.name, self.rank = run, hello.rank_name, hello.rank
        self.hello, self.session = hello, hello.session
        self.loop = loop
        self.facts = hello.facts
        self._sites: dict[int, Site] = {}
        self._new_sites: list[Site] = []
        self._site_ids: set[int] = set()
        self.hits: deque[Hit] = deque(maxlen=MOST_HITS)
        self.hit_count = 0
        self._addresses: dict[str, Site] = {}
        self.hit_steps: Array = np.full(64, -1, np.int64)
        """By site, the step of its last hit."""
        self.events: deque[Json] = deque(maxlen=MOST_EVENTS)
        self.event_count = 0
        self.store = LiveStore()
        self.state = messages.State(step=0)
        self.stop: Json | None = None
        self.finished = False
        self.exit: Json = {}
        self.onlookers = 0
        self.diagnosed = False
        self.graph_stamp: object = None
        """Of the files that onlookers were last told about."""
        self.dropped = 0
        self.seq = 0
        self.behind = False
        """It has told more to another hub, or while this one was away, than has come so far: whether it is stopped is not known yet."""
        self.version = 0
        """Grows with everything that changes its state, so that onlookers can tell an old state from a new one."""
        self.seen_at = time.monotonic()
        self.waiting_since = time.monotonic()
        """Since when this hub knows that it is in the collective of its state."""
        self.stopped_since = time.monotonic()
        self._send: Send | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[messages.Reply]] = {}
        self._lock = threading.Lock()
        self._acked = 0

    @property
    def connected(self) -> bool:
        return self._send is not None

    @property
    def step(self) -> int:
        return self.state.step

    def scalars(self) -> dict[str, tuple[Array, Array]]:
        """Any thread."""
        return self.store.scalars()

    @property
    def bound(self) -> bool:
        """Other ranks wait for this one in collectives, and it for them."""
        return self.connected and not self.finished and self.state.together is not None

    @property
    def time_left(self) -> float | None:
        """Seconds until the back end gives up the collective that it is in; None where it is in none, or that is not known."""
        together, waiting = self.state.together, self.state.waiting
        timeout = together.get("timeout") if together is not None and waiting is not None else None
        return None if timeout is None else max(0.0, float(timeout) - (time.monotonic() - self.waiting_since))

    def goes_on(self, number: int) -> None:
        """The agent has agreed to end the stop of that number, and will say so once more."""
        if self.stop is not None and self.stop["number"] == number:
            self.stop = None
            self.version += 1

    @property
    def stop_step(self) -> int | None:
        return None if self.stop is None else int(self.stop["step"])

    @property
    def ended(self) -> str | None:
        """Why, where the training did not end by itself."""
        return self.exit.get("ended")

    @property
    def word(self) -> str:
        if self.finished:
            return word_of_end(self.exit, self.ended)
        if not self.connected or self.behind:
            return "lost"
        return "stopped" if self.stop is not None else "running"

    # -- what the agent says ---------------------------------------------------------------------

    def attach(self, send: Send, hello: messages.Hello) -> None:
        self.version += 1
        self.hello, self.facts = hello, hello.facts
        self._send, self.seen_at = send, time.monotonic()
        self.behind = self.seq < hello.kept

    def detach(self, send: Send) -> None:
        """Its connection is gone; not if another one has taken its place."""
        if self._send is not send:
            return
        self.version += 1
        self._send, self.seen_at = None, time.monotonic()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(
                    AgentGone("the training's connection to the hub was lost; try again when it is back.")
                )
        self._waiting.clear()

    def take(self, message: messages.FromAgent) -> Json | None:
        """What changed, in words for those who look on; None if nothing did."""
        self.seen_at = time.monotonic()
        if isinstance(message, messages.Kept):
            if message.seq <= self.seq:
                return None  # sent again after a reconnect
            self.seq = message.seq
            if self.behind and self.seq >= self.hello.kept:
                self.behind = False
                self.version += 1
        if isinstance(message, messages.Progress):
            self.version += 1
        match message:
            case messages.Digests():
                return self._digests(message)
            case messages.State():
                if message.waiting != self.state.waiting:
                    self.waiting_since = time.monotonic()
                self.state = message
                return {"type": "state"}
            case messages.Scalars():
                self.store.add_scalars(message.values)
                return {
                    "type": "scalars",
                    "values": {name: pairs[-1] for name, pairs in message.values.items() if pairs},
                }
            case messages.Sites():
                return self._take_sites(message)
            case messages.Hit():
                return self._hit(message)
            case messages.Event():
                self.events.append(message.event)
                self.event_count += 1
                return {"type": "event", "event": {**message.event, "ord": self.event_count - 1}}
            case messages.Stopped():
                self.stopped_since = time.monotonic()
                self.stop = {**message.stop, "number": message.seq}
                return {"type": "stop", "stop": self.stop, "old": message.seq <= self.hello.kept}
            case messages.Resumed():
                self.stop = None
                return {"type": "state"}
            case messages.Bye():
                self.finished, self.stop, self.exit = True, None, message.exit
                return {"type": "state"}
            case messages.Reply():
                future = self._waiting.pop(message.id, None)
                if future is not None and not future.done():
                    future.set_result(message)
                return None
            case messages.Hello():
                raise BadFrame("a second hello on one connection.")
        return None

    def _digests(self, message: messages.Digests) -> Json | None:
        if len(message.rows) % ROW.itemsize or len(message.ords) != len(message.rows) // ROW.itemsize * 8:
            raise BadFrame(f"{len(message.rows)} bytes of rows with {len(message.ords)} bytes of places.")
        rows = np.frombuffer(message.rows, ROW)
        if len(rows) and not ((rows["site"] >= 0) & (rows["site"] < MOST_SITES)).all():
            raise BadFrame("a digest of a site whose number is out of range.")
        self.dropped = message.dropped
        fresh = self.store.add(np.frombuffer(message.ords, np.int64), rows)
        return {"type": "digests", "rows": fresh} if len(fresh) else None

    def _take_sites(self, message: messages.Sites) -> Json | None:
        try:
            found = [site_in(entry) for entry in message.sites]
        except (KeyError, TypeError, ValueError) as problem:
            raise BadFrame(f"a site that cannot be read: {problem!r}.") from None
        if any(not 0 <= site.id < MOST_SITES for site in found):
            raise BadFrame("a site whose number is out of range.")
        new = [site for site in found if site.id not in self._site_ids]
        if not new:
            return None
        self._site_ids.update(site.id for site in new)
        with self._lock:
            self._new_sites += new
        return {"type": "sites", "new": new, "count": len(self._site_ids)}

    @property
    def sites(self) -> dict[int, Site]:
        """Any thread. A new dictionary where sites have come, once per look: they may come one by one, 50,000 of them."""
        self._gather_sites()
        return self._sites

    @property
    def addresses(self) -> dict[str, Site]:
        """Any thread."""
        self._gather_sites()
        return self._addresses

    def _gather_sites(self) -> None:
        if not self._new_sites:
            return
        with self._lock:
            new, self._new_sites = self._new_sites, []
            self._addresses = {**self._addresses, **{site.address: site for site in new}}
            self._sites = {**self._sites, **{site.id: site for site in new}}

    def last_hits(self, sites: Array) -> Array:
        """The step of each site's last hit; -1 for none."""
        known = self.hit_steps
        return np.where(sites < len(known), known[np.minimum(sites, len(known) - 1)], -1)

    def _hit(self, message: messages.Hit) -> Json | None:
        try:
            hit = hit_in(message.hit)
        except (KeyError, TypeError, ValueError) as problem:
            raise BadFrame(f"a hit that cannot be read: {problem!r}.") from None
        self.hits.append(hit)
        site = self.addresses.get(hit.site)
        if site is not None:
            if site.id >= len(self.hit_steps):
                grown = np.full(2 * site.id + 2, -1, np.int64)
                grown[: len(self.hit_steps)] = self.hit_steps
                self.hit_steps = grown
            self.hit_steps[site.id] = hit.moment.step
        self.hit_count = max(self.hit_count, message.ord + 1)
        return {"type": "hit", "ord": message.ord, "hit": hit}

    async def send(self, frame: bytes) -> None:
        """If it is there; a connection that breaks now is noticed by its reader."""
        if self._send is not None:
            with contextlib.suppress(OSError, RuntimeError):
                await self._send(frame)

    def to_acknowledge(self) -> int | None:
        if self.seq == self._acked:
            return None
        self._acked = self.seq
        return self.seq

    # -- asking it -------------------------------------------------------------------------------

    async def ask(
        self, kind: messages.RequestKind, timeout: float = ANSWER_SECONDS, /, **arguments: Any
    ) -> messages.Reply:
        """Its answer. Raises a Refusal where it is away, does not answer in time, or refuses."""
        if self._send is None:
            raise NotNow("the training is not connected to this hub.")
        number = next(self._numbers)
        future: asyncio.Future[messages.Reply] = self.loop.create_future()
        self._waiting[number] = future
        try:
            await self._send(encode(messages.Request(id=number, kind=kind, arguments=arguments)))
            reply = await asyncio.wait_for(future, timeout)
        except TimeoutError:
            raise AgentGone(
                f"the training did not answer within {timeout:g} s; it may be busy between two of its steps."
            ) from None
        except (OSError, RuntimeError):
            raise AgentGone("the training's connection to the hub was lost; try again when it is back.") from None
        finally:
            self._waiting.pop(number, None)
        if reply.error:
            refusal = Refusal(reply.error)
            refusal.status = reply.status
            raise refusal
        return reply

    def ask_now(self, kind: messages.RequestKind, /, **arguments: Any) -> messages.Reply:
        """The same from any thread but the loop's."""
        return asyncio.run_coroutine_threadsafe(self.ask(kind, **arguments), self.loop).result()
