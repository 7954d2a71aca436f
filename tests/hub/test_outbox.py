"""What an agent keeps for the hub: what may be dropped, what never is, and what a new hub gets again."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest

from tensonde.digest.layout import ROW
from tensonde.protocol.messages import Digests, Event, Hit, Kept, Message, Reply, Scalars, Sites, State
from tensonde.protocol.outbox import BATCH, MOST_SCALARS, Outbox


def rows(*sites: int, step: int = 0) -> np.ndarray[Any, Any]:
    made = np.zeros(len(sites), ROW)
    made["site"], made["step"] = sites, step
    return made


def opened(ack: int = 0) -> Outbox:
    made = Outbox()
    made.connected(ack)
    return made


def of(kind: type[Message], messages: list[Message]) -> list[Any]:
    return [message for message in messages if isinstance(message, kind)]


def test_only_the_latest_digest_of_a_site_is_sent_and_the_rest_is_counted() -> None:
    box = opened()
    box.digests(rows(0, 1, 0), 10)
    box.digests(rows(1, 2, step=1), 13)
    (sent,) = of(Digests, box.take(0))
    got = np.frombuffer(sent.rows, ROW)
    assert dict(zip(got["site"].tolist(), np.frombuffer(sent.ords, np.int64).tolist(), strict=True)) == {
        0: 12,
        1: 13,
        2: 14,
    }
    assert sent.dropped == 1
    assert box.take(0) == []


def test_hits_come_in_order_once_and_again_to_a_new_hub() -> None:
    box = opened()
    for k in range(2 * BATCH + 5):
        box.keep(Hit, ord=k, hit={})
    got: list[int] = []
    while messages := box.take(0):
        got += [hit.ord for hit in of(Hit, messages)]
    assert got == list(range(2 * BATCH + 5))
    box.disconnected()
    box.keep(Event, event={"kind": "x"})
    assert box.take(0) == []
    box.connected(2 * BATCH)
    assert [message.seq for message in box.take(0) if isinstance(message, Kept)] == [2 * BATCH + k for k in range(1, 7)]
    box.disconnected()
    box.connected(0)
    assert len(of(Hit, box.take(0))) == BATCH, "a hub that knows nothing gets everything"


def test_what_is_meant_for_a_new_connection_is_not_given_to_the_old_one() -> None:
    """Its sender may still be on its way when the hub is there again."""
    box = Outbox()
    old = box.connected(0)
    box.keep(Event, event={"kind": "x"})
    assert len(box.take(0, old)) == 1
    box.disconnected()
    new = box.connected(0)
    assert box.take(0, old) == []
    assert [message.seq for message in box.take(0, new) if isinstance(message, Kept)] == [1]


def test_what_was_observed_comes_before_what_was_made_of_it() -> None:
    box = opened()
    box.keep(Hit, ord=0, hit={})
    box.site({"id": 0})
    box.digests(rows(0), 0)
    box.scalars(3, {"loss": 1.0})
    box.state(State(step=1))
    box.reply(Reply(id=1))
    assert [type(message) for message in box.take(0)] == [Reply, Sites, State, Scalars, Digests, Hit]


def test_sites_are_sent_again_to_every_hub() -> None:
    box = opened()
    box.site({"id": 0})
    assert len(of(Sites, box.take(0))) == 1
    box.disconnected()
    box.connected(0)
    assert len(of(Sites, box.take(0))) == 1


def test_take_wakes_up_and_settled_waits_for_the_hub() -> None:
    box = opened()
    got: list[list[Message]] = []
    waiting = threading.Thread(target=lambda: got.append(box.take(30)))
    waiting.start()
    seq = box.keep(Hit, ord=0, hit={})
    waiting.join(30)
    assert len(of(Hit, got[0])) == 1
    assert not box.settled(seq, 0)
    box.acknowledge(seq)
    assert box.settled(seq, 0)
    box.disconnected()
    assert not box.settled(seq + 1, 30), "without a hub there is nothing to wait for"


def test_a_state_is_sent_only_when_it_changes() -> None:
    box = opened()
    box.state(State(step=1))
    assert len(of(State, box.take(0))) == 1
    box.state(State(step=1))
    assert box.take(0) == []


def test_a_ping_leaves_the_trainings_random_numbers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep-alive pings are sent every twenty seconds, in a training that uses `random`."""
    from websockets.sync.client import ClientConnection

    from tensonde.protocol.pings import Connection

    sent: list[bytes] = []
    monkeypatch.setattr(ClientConnection, "ping", lambda self, data, ack_on_close: sent.append(data))
    before = random.getstate()
    Connection.ping(object.__new__(Connection), ack_on_close=True)
    assert random.getstate() == before
    assert len(sent[0]) == 4


def test_steps_are_dropped_as_a_whole() -> None:
    """A step may have several losses."""
    box = opened()
    for step in range(MOST_SCALARS):
        for loss in (1.4, 0.7):
            box.scalars(step, {"loss": loss})
    box.digests(rows(0), 0)
    (sent,) = of(Scalars, box.take(0))
    assert len(sent.values["loss"]) <= MOST_SCALARS
    assert [value for _, value in sent.values["loss"][:-2]] == [1.4, 0.7] * (len(sent.values["loss"]) // 2 - 1)
    assert box.dropped == 2 * MOST_SCALARS - len(sent.values["loss"])
