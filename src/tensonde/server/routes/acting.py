"""What can be done to a live training. 409 where there is none."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from tensonde.server import checking, models
from tensonde.server.live import LiveRank
from tensonde.server.numbers import Json
from tensonde.server.place import Place
from tensonde.server.refusals import NotNow
from tensonde.server.region import parse_index
from tensonde.server.routes.reading import PLACE, At, TheHub
from tensonde.watch.parse import watchpoint as parse_watchpoint

router = APIRouter(prefix="/api", tags=["acting"])


async def find_live(run: str, rank: str, hub: TheHub) -> LiveRank:
    """Without a look at the disk: a pause must be quick, whatever else the hub does."""
    await hub.acting()
    live = hub.live_at((run, rank))
    if live is None:
        await asyncio.to_thread(hub.place, run, rank)  # there may be no such place at all
    if live is None or live.finished:
        raise NotNow("the training is over; this can only be done to a live one.")
    if not live.connected:
        raise NotNow("the training is not connected to this hub now; this can only be done to a live one.")
    return live


Live = Annotated[LiveRank, Depends(find_live)]


async def act(live: LiveRank, wish: models.Control) -> dict[str, Any]:
    if wish.action == "pause":
        reply = await live.ask("pause")
    elif wish.action == "terminate":
        reply = await live.ask("terminate")
    else:
        if live.stop is None:
            raise NotNow("the training runs; pause it first.")
        reply = await live.ask("resume", kind=wish.action, count=wish.count, sites=wish.sites)
    return {"accepted": True, "state": reply.result["state"]}


@router.post(PLACE + "/control", response_model=models.Accepted)
async def control(live: Live, hub: TheHub, wish: models.Control) -> Any:
    """Accepted by the training's gate; the stop itself comes on /api/live. A rank that waits for others in collectives, and they for it, does it
    together with them; with `alone`, by itself where that leaves nobody waiting."""
    if not live.bound:
        return Json(await act(live, wish))
    group = hub.group(live.run)
    if wish.alone and len(group.ranks) > 1:
        return Json(await group.alone(live, wish.action, wish.count))
    return Json(await group.act(wish.action, wish.count, wish.sites))


@router.post("/runs/{run}/control", response_model=models.Accepted)
async def control_all(run: str, hub: TheHub, wish: models.Control) -> Any:
    """The same for all ranks of the run: together where they wait for each other in collectives, so that none is left waiting in one."""
    await hub.acting()
    ranks = hub.ranks_of(run)
    if not ranks:
        raise NotNow("no rank of this run is connected to this hub; this can only be done to a live one.")
    found = []
    single = [live for live in ranks if not live.bound]
    if len(single) < len(ranks):
        found.append(await hub.group(run).act(wish.action, wish.count, wish.sites))
    if wish.action not in ("pause", "terminate"):
        single = [live for live in single if live.stop is not None]
        if not single and not found:
            raise NotNow("the training runs; pause it first.")
    found += await asyncio.gather(*(act(live, wish) for live in single))
    return Json(found[0])


# -- watchpoints -------------------------------------------------------------------------------------


def described(at: Place, entry: dict[str, Any]) -> dict[str, Any]:
    """With how many sites it watches, and what it has reported."""
    return checking.described(at, entry)


@router.post(PLACE + "/watchpoints", response_model=models.Watchpoint, tags=["watchpoints"])
async def watch(at: At, live: Live, new: models.NewWatchpoint) -> Any:
    """Takes effect between two steps."""
    parse_watchpoint(f"{new.sites} {new.condition}", id=1)  # wrong words are told here, also while the training is busy
    reply = await live.ask("watch", **new.model_dump())
    return Json(described(at, reply.result))


@router.post(PLACE + "/watchpoints/recommended", response_model=list[models.Watchpoint], tags=["watchpoints"])
async def recommended(at: At, live: Live) -> Any:
    """Adds what is missing of the default set."""
    reply = await live.ask("recommended")
    return Json([described(at, entry) for entry in reply.result])


@router.put(PLACE + "/watchpoints/{id}", response_model=models.Watchpoint, tags=["watchpoints"])
async def rewatch(at: At, live: Live, id: int, new: models.ChangedWatchpoint) -> Any:
    """Changes what is given, and leaves the rest."""
    reply = await live.ask("rewatch", id=id, **new.model_dump(exclude_none=True))
    return Json(described(at, reply.result))


@router.delete(PLACE + "/watchpoints/{id}", response_model=models.Message, tags=["watchpoints"])
async def unwatch(live: Live, id: int) -> Any:
    await live.ask("unwatch", id=id)
    return Json({"message": f"watchpoint {id} is removed"})


# -- breakpoints -------------------------------------------------------------------------------------


@router.get(PLACE + "/breakpoints", response_model=list[models.Breakpoint])
async def breakpoints(at: At) -> Any:
    if at.live is None or not at.live.connected:
        return Json([])
    return Json((await at.live.ask("breakpoints")).result)


@router.post(PLACE + "/breakpoints", response_model=models.Breakpoint)
async def add_breakpoint(live: Live, new: models.NewBreakpoint) -> Any:
    """At sites or at a line; of a running training, answered when its current step is over."""
    return Json((await live.ask("break", **new.model_dump())).result)


@router.delete(PLACE + "/breakpoints/{id}", response_model=models.Message)
async def remove_breakpoint(live: Live, id: int) -> Any:
    await live.ask("unbreak", id=id)
    return Json({"message": f"breakpoint {id} is removed"})


# -- at a stop ---------------------------------------------------------------------------------------


@router.post(PLACE + "/command", response_model=models.Output)
async def command(live: Live, hub: TheHub, request: models.Command) -> Any:
    """A line for the terminal debugger, run in the training thread; an empty one shows where it has stopped. How the training goes on is for all
    ranks that wait for each other."""
    reply = await live.ask("command", 600.0, line=request.line, together=live.bound)
    plan = reply.result.pop("plan", None)
    if plan is not None:
        kind = "terminate" if plan["kind"] == "quit" else plan["kind"]
        await hub.group(live.run).act(kind, plan["count"], plan["sites"])
    return Json(reply.result)


@router.post(PLACE + "/complete", response_model=models.Completion)
async def complete(live: Live, request: models.CompleteRequest) -> Any:
    """What TAB offers."""
    return Json((await live.ask("complete", text=request.text)).result)


@router.post(PLACE + "/assign", response_model=models.Message)
async def assign(live: Live, request: models.Assign) -> Any:
    """Writes into a live tensor; from then on the training is not what it would have been."""
    shape = tuple((await live.ask("shape", address=request.address)).result["shape"])
    index = (
        [[p.start, p.stop, p.step] if isinstance(p, range) else p for p in parse_index(request.index, shape)]
        if request.index.strip()
        else []
    )
    return Json((await live.ask("assign", address=request.address, index=index, value=float(request.value))).result)
