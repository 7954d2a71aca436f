"""The session's partner of the hub, inside the training process.

It passes on what is written to the recording, accepts requests at any time, and is the gate's controller: at a stop it serves
the hub in the training thread until somebody says how to go on. The training never waits for the hub, except while it is stopped; and a
hub that is lost meanwhile is waited for only so long. What is said, and in which thread, is in `serving/`.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tensonde.model.stop import Resume, Stop
from tensonde.protocol import messages
from tensonde.protocol.address import Address
from tensonde.protocol.link import Link
from tensonde.protocol.messages import FromHub
from tensonde.protocol.outbox import Outbox
from tensonde.session.inspector import Inspector
from tensonde.session.serving.answers import Answers
from tensonde.session.serving.commands import Commands
from tensonde.session.serving.feed import Feed
from tensonde.session.serving.progress import Progress
from tensonde.session.serving.requests import CAPABILITIES
from tensonde.session.serving.service import Service
from tensonde.store.files import plain
from tensonde.store.liveness import machine

GOODBYE = 2.0
FIRST_CALL = 3.0


class Agent:
    """`_receive`, `_hello` and `_poll` are called in the link's threads; the rest is the training thread's. Never raises into the training."""

    def __init__(
        self, inspector: Inspector, address: Address, commands: Commands, *, epoch: Callable[[], int] = lambda: 0
    ) -> None:
        self.session = inspector.session
        self.clients = 0
        self._pid = os.getpid()
        self._id = secrets.token_hex(8)
        self._outbox = Outbox()
        self._feed = Feed(self._outbox)
        self._progress = Progress(inspector, epoch)
        self._service = Service(inspector, commands, self._progress, Answers(self._outbox), lambda: self.link.lost_at)
        quiet = _is_one_of_many(self.session.rank)
        self._debugging = self.session.options.debug and not quiet
        if quiet:
            self._service.level = logging.INFO
        self.link = Link(address, self._outbox, self._hello, self._receive, self._poll, quiet=quiet)

    def start(self) -> None:
        """Takes its places in the session, and begins to look for the hub."""
        for site in self.session.sites:
            self._feed.site(site)
        self.session.writer.listener = self._feed
        self.session.gate.light = True
        self.session.gate.controller = self
        self.session.on_step = self._between_steps
        self.link.start()
        self.link.tried(FIRST_CALL)  # so that a hit of the first step finds those who wait for it

    def close(self, exit: Mapping[str, Any]) -> None:
        """After the recording was closed. Takes no longer than GOODBYE."""
        if os.getpid() != self._pid:
            return
        self._poll()
        last = self._outbox.keep(messages.Bye, exit=plain({**exit, "ended": self.session.ended}))
        if self.link.connected:
            self._outbox.settled(last, GOODBYE)
        self.link.close()

    # -- the gate's controller -------------------------------------------------------------------

    def __call__(self, stop: Stop) -> Resume:
        if os.getpid() != self._pid or not self._worth(stop):
            return Resume()
        self._service.desk.open(stop)
        self._poll()
        self._latest_rows()  # first, so that whoever hears of the stop can look at it
        self._feed.stopped(stop)
        began = time.monotonic()
        try:
            return self._service.hold()
        finally:
            self._progress.stopped += time.monotonic() - began
            self._weigh()
            for request in self._service.desk.close():
                self._service.answers.refuse(request, "the training runs again; pause it first.")
            self._feed.resumed()
            self.session.whereabouts.still(0.0)

    def _worth(self, stop: Stop) -> bool:
        """A stop that nobody has asked for just now is made only if somebody is there to see it."""
        if stop.reason in ("pause", "entry", "step", "next", "until", "finish", "line"):
            return True
        if self.link.connected and self.clients > 0:
            return True
        self.session.note("not-paused", reason=stop.reason, step=stop.moment.step, why="nobody is connected to the hub")
        return False

    def _latest_rows(self) -> None:
        """What was observed since the last write, for those who look at this stop."""
        self.session.settle()
        rows = self.session.rows[: len(self.session.block)]
        if len(rows):
            self._feed.digests(rows, self.session.writer.rows)
            for step, loss in self.session.losses(rows):
                self._feed.scalars(step, {"loss": loss})

    def _between_steps(self) -> None:
        """In the training thread, while it runs."""
        if os.getpid() != self._pid:
            return
        self._weigh()
        if self._service.terminate:
            self.session.end("asked to by the hub")
        try:
            if self._service.watchlist.changed:
                self._service.watchlist.apply()
            while (request := self._service.desk.between_steps()) is not None:
                self._service.serve(request)
        except Exception as problem:
            self.session.guard.contain("serving the hub", problem)

    def _weigh(self) -> None:
        """Under `tensonde debug` with somebody looking, a stop finds the tensors of its step and of the one before, as in a terminal.
        Ranks stop together, at the end of a step, and nothing is kept for that."""
        gate = self.session.gate
        light = not (self._debugging and self.clients > 0)
        if light is not gate.light:
            gate.light = light
            gate.changed()

    # -- the link's threads ----------------------------------------------------------------------

    def _hello(self) -> messages.Hello:
        writer, facts = self.session.writer, self.session.writer.session
        manifest = Path(self.session.options.run)
        return messages.Hello(
            protocol=messages.PROTOCOL, session=self._id, run=run_id(manifest), name=manifest.name, rank=self.session.rank,
            rank_name=writer.folder.name, path=str(writer.folder.absolute()), machine=machine(),
            script=str(facts.get("script", "")), started=str(facts.get("started", "")), facts=plain(facts), capabilities=CAPABILITIES, kept=self._outbox.last_kept,
        )  # fmt: skip

    def _poll(self) -> None:
        self._outbox.state(self._progress.look())

    def _receive(self, message: FromHub) -> None:
        if isinstance(message, messages.Welcome):
            self.clients = message.clients
        elif isinstance(message, messages.Clients):
            self.clients = message.count
        elif isinstance(message, messages.Request):
            self._service.receive(message)


def _is_one_of_many(rank: int) -> bool:
    """What all ranks of a machine lose, its first one tells."""
    return os.environ.get("LOCAL_RANK", str(rank)) != "0"


def run_id(run: Path) -> str:
    from tensonde.store.documents import read_json
    from tensonde.store.format import MANIFEST

    try:
        return str(read_json(run / MANIFEST, dict)["id"])
    except (OSError, ValueError, KeyError):
        return run.name
