"""The ranks of a run that wait for each other in collectives, steered as one.

A rank that stands still keeps the others waiting in their next collective, where nobody can stop them and where the back end's time runs. So
ranks stop together: at a common step, or at the same node. When one stops by itself (a hit, a breakpoint), the others are held at the
end of their step, if they get there. Whatever the ranks do, each command moves all that are stopped, so no command can leave them stuck.

Messages cross: a rank may stop for what it was asked before the last command. `stopped` sets that right.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tensonde.protocol.messages import Reply
from tensonde.server.live import LiveRank
from tensonde.server.refusals import AgentGone, NotNow

log = logging.getLogger("tensonde.hub")
Json = dict[str, Any]
ROUND_TRIP = 0.1
"""Seconds until all ranks are told; more where their answers take longer, as those of many do."""
TRIES = 8
GRACE = 0.5
"""Seconds that ranks have to reach the node that one of them has reached."""
MARGIN = 30.0
"""With so many seconds left, or a quarter of the time, a collective that waits for a stopped rank ends the stop."""
ASKED = ("pause", "step")
NODES = ("next", "nextop", "until", "finish")


class Group:
    """In the event loop. `ranks` are those that are connected, and bound to each other."""

    def __init__(self, ranks: Callable[[], list[LiveRank]]) -> None:
        self._ranks = ranks
        self._turn = 0
        """Grows with every command."""
        self._aim: int | None = None
        """The step at which all are to stop."""
        self._free = False
        """The last command let all run: nobody is to stop for an earlier one."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def ranks(self) -> list[LiveRank]:
        return self._ranks()

    # -- commands --------------------------------------------------------------------------------

    async def act(self, action: str, count: int = 1, sites: str = "") -> Json:
        """The same for all ranks. Raises NotNow where none can do it."""
        ranks = self._ranks()
        stopped = [live for live in ranks if live.stop is not None]
        if action not in ("pause", "terminate") and not stopped:
            raise NotNow("the training runs; pause it first.")
        self._turn += 1
        self._aim, self._free = None, False
        if action == "terminate":
            await _each(ranks, lambda live: live.ask("terminate"))
        elif action == "continue":
            self._free = True
            await _each(ranks, lambda live: live.ask("release"))
        elif action == "step":
            await self._agree(ranks, room=count, reason="step")
        elif action == "pause":
            if stopped:
                await _each([live for live in ranks if live.stop is None], lambda live: live.ask("hold"))
            else:
                await self._agree(ranks, room=2, reason="pause")
        else:
            await self._nodes(ranks, stopped, action, count, sites)
        return {"accepted": True, "state": "stopped" if action == "pause" and stopped else "running"}

    async def _agree(self, ranks: list[LiveRank], *, room: int, reason: str) -> None:
        """Picks a step that none has reached, and tells all; again with more room where one was quicker. Those that run hear of it
        first: the others let them go on."""
        turn = self._turn
        waiting = [live for live in ranks if live.stop is not None]
        running = [live for live in ranks if live.stop is None]
        for k in range(TRIES):
            asked = time.monotonic()
            there = await _each(ranks, lambda live: live.ask("where"))
            round_trip = max(ROUND_TRIP, time.monotonic() - asked)
            if not there:
                raise NotNow("no rank of this run answers; try again.")
            quickest = max(float(one.result.get("speed") or 0.0) for one in there)
            moving = any(one.result["state"] == "running" for one in there)
            ahead = math.ceil(quickest * round_trip) if moving and reason == "pause" else 0
            aim = max(int(one.result["step"]) for one in there) + room * 4**k + ahead
            if turn != self._turn:
                return  # one has stopped by itself, or there is another command
            self._aim = aim
            told = await _each(running, _to(aim, reason, go=False))
            told += await _each(waiting, _to(aim, reason, go=True))
            if all(one.result["accepted"] for one in told):
                return
        raise NotNow("the ranks could not agree on a step to stop at; try again.")

    async def _nodes(self, ranks: list[LiveRank], stopped: list[LiveRank], action: str, count: int, sites: str) -> None:
        """Those that are behind go on, at most to where the first of the others is; who runs is held at the end of its step."""
        behind = min(_place(live) for live in stopped)
        moving = [live for live in stopped if _place(live) == behind]
        steps = [_place(live)[0] for live in stopped if _place(live)[0] > behind[0]]
        limit = min(steps, default=None)
        await _each([live for live in ranks if live.stop is None], lambda live: live.ask("hold"))
        await _each(moving, lambda live: live.ask("resume", kind=action, count=count, sites=sites, limit=limit))

    async def alone(self, live: LiveRank, action: str, count: int = 1) -> Json:
        """Only where no other rank can be left waiting; raises NotNow where one could."""
        others = [other for other in self._ranks() if other is not live]
        if action == "step" and live.stop is not None and others:
            aim = int(live.stop["step"]) + count
            if all(other.stop is not None and int(other.stop["step"]) >= aim for other in others):
                reply = await live.ask("pause_at", step=aim, reason="step", go=True)
                return {"accepted": True, "state": reply.result["state"]}
        names = ", ".join(other.name for other in others)
        why = {
            "pause": f"{names} would wait for it in their next collective",
            "terminate": f"{names} would wait for it in vain",
        }.get(action, f"it would wait for {names} in its next collective, or they for it")
        raise NotNow(
            f"{live.name} cannot do `{action}` alone: {why}. Do it with all ranks together; a rank that is behind may `step` alone to where the others are."
        )

    # -- what ranks do ---------------------------------------------------------------------------

    def stopped(self, live: LiveRank) -> None:
        """A rank has stopped just now."""
        stop = live.stop
        if stop is None or not live.bound:
            return
        reason, step = stop["reason"], int(stop["step"])
        if reason in ASKED:
            if self._free:
                self._later(live.ask("release"))
            elif self._aim is not None and step < self._aim:
                self._later(live.ask("pause_at", step=self._aim, reason=reason, go=True))
            return
        self._later(self._hold_others(live, self._turn, GRACE if reason in NODES else 0.0))

    async def _hold_others(self, live: LiveRank, turn: int, grace: float) -> None:
        await asyncio.sleep(grace)
        if turn != self._turn or live.stop is None:
            return
        self._turn += 1
        self._aim, self._free = None, False
        await _each([other for other in self._ranks() if other.stop is None], lambda other: other.ask("hold"))

    def watch_time(self) -> None:
        """Lets all go on before a back end gives up a collective that waits for a stopped rank."""
        ranks = self._ranks()
        if self._free or not any(live.stop is not None for live in ranks):
            return
        for live in ranks:
            left = self._time_left(live, len(ranks))
            together = live.state.together or {}
            if left is not None and left < min(MARGIN, float(together["timeout"]) / 4):
                who = live.name if live.stop is None else "a rank without Tensonde"
                what = (live.state.waiting or {}).get("what", "a collective")
                why = f"{who} waits in {what}, which {together['backend']} gives up in {left:.0f} s"
                self._turn += 1
                self._aim, self._free = None, True
                for other in ranks:
                    self._later(other.ask("release", why=why))
                return

    @staticmethod
    def _time_left(live: LiveRank, there: int) -> float | None:
        """Until a collective is given up: of a rank that waits in one, or of ranks that this hub does not know and that may wait for a stopped one."""
        if live.stop is None:
            return live.time_left
        together = live.state.together or {}
        if there >= int(together.get("world", 0)) or together.get("timeout") is None:
            return None
        return float(together["timeout"]) - (time.monotonic() - live.stopped_since)

    def _later(self, work: Awaitable[Any]) -> None:
        async def contained() -> None:
            try:
                await work
            except Exception as problem:  # it is gone, or has gone on meanwhile
                log.debug("a rank was not reached: %s", problem)

        task = asyncio.create_task(contained())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _place(live: LiveRank) -> tuple[int, bool]:
    """How far a stopped rank is: the step, and whether it is inside of it."""
    stop = live.stop or {}
    return int(stop.get("step", 0)), stop.get("reason") not in ASKED


def _to(step: int, reason: str, *, go: bool) -> Callable[[LiveRank], Awaitable[Reply]]:
    return lambda live: live.ask("pause_at", step=step, reason=reason, go=go)


async def _each(ranks: list[LiveRank], ask: Callable[[LiveRank], Awaitable[Reply]]) -> list[Reply]:
    """The answers of those that are still there, and have not moved meanwhile. Raises what is wrong with the question."""

    async def one(live: LiveRank) -> Reply:
        number = live.stop["number"] if live.stop is not None else None
        reply = await ask(live)
        if number is not None and reply.result.get("state") == "running":
            live.goes_on(number)
        return reply

    found = await asyncio.gather(*(one(live) for live in ranks), return_exceptions=True)
    for answer in found:
        if isinstance(answer, BaseException) and getattr(answer, "status", 422) not in (
            AgentGone.status,
            NotNow.status,
        ):
            raise answer
    return [answer for answer in found if isinstance(answer, Reply)]
