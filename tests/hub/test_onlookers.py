"""What onlookers are told, and in which order."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tensonde.model.site import Kind, Role, Site
from tensonde.protocol import messages
from tensonde.server.hub import Hub
from tensonde.server.library import Library
from tensonde.server.live import LiveRank
from tensonde.server.onlookers import MOST_SITES, Onlooker
from tensonde.store.codec import site_out

STOP = {"reason": "next", "step": 3, "phase": "forward", "call": 0, "site": "0:out", "modules": [], "hits": []}


def play(*said: list[Any], kept: int = 0) -> list[list[dict[str, Any]]]:
    """What an onlooker gets after each group of messages of an agent, and one tick. `kept`: how many it had for another hub before."""

    async def run() -> list[list[dict[str, Any]]]:
        hub = Hub(Library())
        hello = messages.Hello(
            protocol=1, session="s", run="r", name="r", rank=0, rank_name="rank0", path="", machine="", kept=kept
        )

        async def send(frame: bytes) -> None:
            pass

        live: LiveRank = hub.welcome(hello, send)
        one = Onlooker()
        hub.gallery.onlookers.add(one)
        one.places.add((live.run, "rank0"))
        found = []
        for group in said:
            for message in group:
                hub.hear(live, message)
            hub.gallery.tick()
            found.append([json.loads(text) for text in await one.take()])
        return found

    return asyncio.run(run())


def test_a_resume_that_waits_does_not_come_after_the_stop_that_follows_it() -> None:
    before, after = play(
        [messages.Stopped(seq=1, stop=STOP)], [messages.Resumed(seq=2), messages.Stopped(seq=3, stop=STOP)]
    )
    assert [message["state"]["state"] for message in before if message["type"] == "state"] == ["stopped"]
    states = [message["state"] for message in after if message["type"] == "state"]
    assert states[-1]["state"] == "stopped"
    assert states[-1]["stop"]["number"] == 3
    assert states[-1]["version"] > before[-1]["state"]["version"]


def test_every_change_of_state_has_a_larger_version() -> None:
    groups = play(
        [messages.State(step=0)],
        [messages.Stopped(seq=1, stop=STOP)],
        [messages.Resumed(seq=2)],
        [messages.State(step=1)],
        [messages.Bye(seq=3)],
    )
    versions = [message["state"]["version"] for group in groups for message in group if message["type"] == "state"]
    assert versions == sorted(set(versions))
    assert len(versions) == 5


def test_a_hub_that_was_started_anew_does_not_say_what_the_training_did_before() -> None:
    """It hears of old stops and resumes first. Nothing is claimed until the last of them is there, whatever that is about."""
    groups = play(
        [messages.State(step=3), messages.Stopped(seq=1, stop=STOP), messages.Resumed(seq=2)],
        [messages.Stopped(seq=3, stop=STOP)],
        [messages.Event(seq=4, event={"kind": "note"})],
        [messages.Resumed(seq=5)],
        kept=4,
    )
    states = [[message["state"] for message in group if message["type"] == "state"] for group in groups]
    assert {(state["state"], state["connected"], state["stop"]) for group in states[:2] for state in group} == {
        ("lost", False, None)
    }
    assert states[2][-1]["state"] == "stopped"
    assert states[2][-1]["stop"]["number"] == 3
    assert states[3][-1]["state"] == "running"


def site(id: int) -> dict[str, Any]:
    return site_out(Site(id, f"layer{id}", Role.OUT, Kind.MODULE))


def test_sites_that_come_one_by_one_are_told_together() -> None:
    [told] = play([messages.Sites(sites=[site(k)]) for k in range(500)])
    [sites] = [message for message in told if message["type"] == "sites"]
    assert sites["count"] == 500
    assert [entry["id"] for entry in sites["new"]] == list(range(500))


def test_of_very_many_sites_only_the_number_is_told() -> None:
    # 50,000 of them, one by one: this must not take time that grows with their square.
    [told] = play([messages.Sites(sites=[site(k)]) for k in range(50_000)])
    [sites] = [message for message in told if message["type"] == "sites"]
    assert sites["count"] == 50_000 > MOST_SITES
    assert sites["new"] is None
