"""How a run and its ranks are: as the recording tells, and as the agent does, who knows better while it is there."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from tensonde.server.library import RecordedRun
from tensonde.server.live import LiveRank, word_of_end
from tensonde.server.numbers import numbers
from tensonde.server.recorded import RecordedRank

Json = dict[str, Any]
Array = np.ndarray[Any, Any]
SKETCH = 40
HUB = time.time_ns() // 1_000_000
"""When this hub was started. States of a hub that was started later are newer, whatever their versions are."""


def run_word(ranks: list[Json]) -> str:
    words = {rank["state"] for rank in ranks}
    if words & {"running", "stopped"} or any(rank["live"] for rank in ranks):
        return "live"
    if words & {"killed", "lost"}:
        return "killed"
    return next((word for word in ("failed", "terminated", "finished") if word in words), "empty")


def recorded_run(id: str, run: RecordedRun, *, without: Collection[str] = ()) -> Json:
    """`without`: ranks that somebody else knows better."""
    manifest, ranks = run.manifest, run.ranks
    states = [recorded_state(rank) for rank in ranks.values() if rank.name not in without]
    first = next(iter(ranks.values())).session if ranks else {}
    return {
        "id": id, "name": run.path.name, "script": manifest.get("script"), "framework": first.get("framework"),
        "started": manifest.get("started"), "command": _command(manifest), "state": run_word(states), "path": str(run.path), "ranks": states,
    }  # fmt: skip


def recorded_state(rank: RecordedRank) -> Json:
    session = rank.session
    steps = session.get("steps")
    overhead = session.get("overhead") or {}
    ratio = overhead.get("ratio")
    last = max(
        steps - 1 if isinstance(steps, int) else -1, rank.last_step
    )  # while it runs, the count may be of its start
    word = {"live": "running"}.get(rank.state, rank.state)
    if word == "finished":
        exit = session.get("exit")
        word = word_of_end(exit if isinstance(exit, dict) else {}, session.get("ended"))
    return {
        "name": rank.name, "rank": rank.rank, "live": rank.state == "live", "connected": False,
        "state": word, "ended": session.get("ended"), "stop": None, "step": max(last, 0), "steps": last + 1,
        "epoch": None, "phase": None, "steps_per_second": _speed(rank),
        "overhead": ratio - 1 if isinstance(ratio, int | float) else None,
        "budget": overhead.get("budget", (session.get("options") or {}).get("budget")),
        "device": session.get("device"), "framework": session.get("framework"), "host": session.get("host"),
        "pid": session.get("pid"), "hits": len(rank.hits), "findings": rank.finding_count, "dropped": 0,
        "seconds": rank.seconds, "loss": sketch(rank.scalars()),
        "last_step_at": session.get("closed"), "capabilities": ["read"], "version": 0, "hub": HUB,
    }  # fmt: skip


def live_state(live: LiveRank, recorded: Json | None) -> Json:
    """With what the recording knows, if it is given. May be called beside the event loop: the version is read first, so that what
    comes in meanwhile has a larger one."""
    version = live.version
    known, facts = live.state, live.facts
    word = live.word
    if recorded is not None and not live.connected:
        word = (
            "lost" if recorded["state"] == "running" else str(recorded["state"])
        )  # finished or killed: the recording knows
    lives = word in ("running", "stopped", "lost")
    # The training counts the step that it is at; one that has ended is at none, and the last one is what there is to look at.
    if lives:
        at = known.step, known.step
    else:
        last = max(known.step - 1, live.store.last_step, 0)  # it may have ended inside of a step
        at = (recorded["step"], recorded["steps"]) if recorded is not None else (last, last + 1)
    return {
        "name": live.name, "rank": live.rank, "live": lives, "connected": live.connected and not live.behind,
        "state": word, "stop": live.stop if word == "stopped" else None, "step": at[0], "steps": at[1],
        "epoch": known.epoch, "phase": known.phase or None, "steps_per_second": known.steps_per_second,
        "overhead": known.overhead, "budget": (facts.get("options") or {}).get("budget"), "device": facts.get("device"),
        "framework": facts.get("framework"), "host": facts.get("host"), "pid": facts.get("pid"), "hits": live.hit_count,
        "findings": recorded["findings"] if recorded else None, "ended": live.ended or (recorded or {}).get("ended"), "onlookers": live.onlookers,
        "seconds": (recorded or {}).get("seconds"), "loss": (recorded or {}).get("loss", []), "dropped": live.dropped, "last_step_at": known.last_step_at,
        "capabilities": live.hello.capabilities if live.connected and not live.finished else ["read"], "version": version, "hub": HUB,
        "memory": known.memory, "together": _together(live),
    }  # fmt: skip


def _together(live: LiveRank) -> Json | None:
    known, waiting = live.state.together, live.state.waiting
    if known is None:
        return None
    if waiting is not None:
        seconds = max(0.0, time.monotonic() - live.waiting_since)
        waiting = {"what": waiting.get("what"), "line": waiting.get("line"), "seconds": seconds, "left": live.time_left}
    return {**known, "waiting": waiting}


def _command(manifest: Json) -> list[str]:
    argv = manifest.get("argv")
    script = [str(manifest["script"])] if manifest.get("script") else []
    launcher = manifest.get("launcher")
    before, after = (list(map(str, words)) if isinstance(words, list) else [] for words in (launcher, argv))
    return [*before, *script, *after]


def sketch(scalars: Mapping[str, tuple[Array, Array]]) -> list[Any]:
    """The loss in a few points; of a step with several, as that of a GAN, their mean."""
    found = scalars.get("loss")
    if found is None or not len(found[1]):
        return []
    _, of, many = np.unique(found[0], return_inverse=True, return_counts=True)
    means = np.bincount(of, weights=found[1]) / many
    return numbers(means[np.unique(np.linspace(0, len(means) - 1, SKETCH).astype(np.int64))])


def _speed(rank: RecordedRank) -> float | None:
    """Of the last hundred steps."""
    seconds = rank.scalars().get("step_seconds")
    if seconds is None or not len(seconds[1]):
        return None
    mean = float(seconds[1][-100:].mean())
    return 1 / mean if mean > 0 else None
