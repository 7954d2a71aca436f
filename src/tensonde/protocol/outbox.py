"""What an agent has yet to send: bounded, and with an order of importance.

Hits, stops and events are kept until the hub has acknowledged them, and longer, so that a hub that was started anew gets them again. Digests,
scalars and the state are only of use while they are fresh: newer ones take the place of what was not sent in time, which is counted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import numpy as np

from tensonde.digest.latest import last_rows
from tensonde.digest.layout import ROW
from tensonde.protocol.messages import Digests, Kept, Message, Scalars, Sites, State

MOST_KEPT = 100_000
MOST_SCALARS = 4096
BATCH = 1000
SITES_A_FRAME = 10_000
Array = np.ndarray[Any, Any]


class Outbox:
    """Any thread. `take` blocks until there is something to send; all else returns at once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._kept: deque[Kept] = deque(maxlen=MOST_KEPT)
        self._seq = 0
        self._sent = 0
        """The last `seq` that was given out to be sent on this connection."""
        self._replies: deque[Message] = deque()
        self._sites: list[dict[str, Any]] = []
        self._sites_sent = 0
        self._rows: Array = np.empty(0, ROW)
        self._ords: Array = np.empty(0, np.int64)
        self._scalars: dict[str, list[tuple[int, float]]] = {}
        self._state: State | None = None
        self._last_state: State | None = None
        self._open = False
        self._turn = 0
        self.dropped = 0
        self.acknowledged = 0

    @property
    def last_kept(self) -> int:
        """The number of the last message that must arrive."""
        return self._seq

    # -- filling ---------------------------------------------------------------------------------

    def keep(self, kind: Any, **fields: Any) -> int:
        """A message that must arrive."""
        with self._changed:
            self._seq += 1
            self._kept.append(kind(seq=self._seq, **fields))
            self._changed.notify_all()
            return self._seq

    def reply(self, message: Message) -> None:
        with self._changed:
            self._replies.append(message)
            self._changed.notify_all()

    def site(self, entry: dict[str, Any]) -> None:
        with self._changed:
            self._sites.append(entry)
            self._changed.notify_all()

    def digests(self, rows: Array, first: int) -> None:
        """Copies the latest row of each site."""
        chosen = np.sort(last_rows(rows["site"])[1])
        newest, ords = rows[chosen], chosen + first
        with self._changed:
            if len(self._rows):
                stale = np.isin(self._rows["site"], newest["site"])
                self.dropped += int(stale.sum())
                newest = np.concatenate([self._rows[~stale], newest])
                ords = np.concatenate([self._ords[~stale], ords])
            self._rows, self._ords = newest, ords
            if self._open:
                self._changed.notify_all()

    def scalars(self, step: int, values: dict[str, float]) -> None:
        with self._changed:
            for name, value in values.items():
                series = self._scalars.setdefault(name, [])
                series.append((step, float(value)))
                if len(series) > MOST_SCALARS:
                    gone = every_second(step for step, _ in series)
                    kept = [pair for pair in series if pair[0] not in gone]
                    self.dropped += len(series) - len(kept)
                    series[:] = kept

    def state(self, state: State) -> None:
        with self._changed:
            if state != self._last_state:
                self._state = self._last_state = state
                self._changed.notify_all()

    # -- emptying --------------------------------------------------------------------------------

    def connected(self, ack: int) -> int:
        """A hub that has seen everything up to `ack` listens now. The turn of this connection, for `take`."""
        with self._changed:
            self._turn += 1
            self._sent = ack
            self._sites_sent = 0
            self._state = self._last_state
            self._open = True
            self._changed.notify_all()
            return self._turn

    def disconnected(self) -> None:
        with self._changed:
            self._open = False
            self._replies.clear()  # whoever asked is gone
            self._changed.notify_all()

    def acknowledge(self, seq: int) -> None:
        with self._changed:
            self.acknowledged = max(self.acknowledged, seq)
            self._changed.notify_all()

    def take(self, timeout: float | None = None, turn: int | None = None) -> list[Message]:
        """What is to be sent now; [] when the time is over, the hub is gone, or another connection than that of `turn` is open: what is
        meant for that one must not be sent on the old one, where it would be lost. What was observed comes before what was made of it."""
        with self._changed:
            self._changed.wait_for(lambda: self._over(turn) or self._has_more(), timeout)
            if self._over(turn) or not self._has_more():
                return []
            found: list[Message] = list(self._replies)
            self._replies.clear()
            if self._sites_sent < len(self._sites):
                end = self._sites_sent + SITES_A_FRAME
                found.append(Sites(sites=self._sites[self._sites_sent : end]))
                self._sites_sent = min(end, len(self._sites))
            if self._state is not None:
                found.append(self._state)
                self._state = None
            if self._scalars:
                found.append(Scalars(values=self._scalars))
                self._scalars = {}
            if len(self._rows):
                found.append(Digests(ords=self._ords.tobytes(), rows=self._rows.tobytes(), dropped=self.dropped))
                self._rows, self._ords = self._rows[:0], self._ords[:0]
            if self._seq > self._sent:
                waiting = list(takewhile(lambda message: message.seq > self._sent, reversed(self._kept)))
                new = waiting[: -BATCH - 1 : -1]  # the oldest of them, in order
                self._sent = new[-1].seq if new else self._seq
                found += new
            return found

    def _over(self, turn: int | None) -> bool:
        return not self._open or (turn is not None and turn != self._turn)

    def _has_more(self) -> bool:
        return bool(
            self._replies
            or self._sites_sent < len(self._sites)
            or self._seq > self._sent
            or self._state
            or len(self._rows)
        )

    def settled(self, seq: int, timeout: float) -> bool:
        """Waits until the hub has acknowledged `seq`; False when it has not in time, or is gone."""
        with self._changed:
            self._changed.wait_for(lambda: self.acknowledged >= seq or not self._open, timeout)
            return self.acknowledged >= seq


def every_second(steps: Iterable[int]) -> set[int]:
    """Of these steps, but not the last one: a step is dropped as a whole, for it may have several losses."""
    return set(list(dict.fromkeys(steps))[:-1:2])
