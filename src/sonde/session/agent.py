"""The session's partner of the hub, inside the training process.

It listens to what is written to the recording and passes it on, accepts requests at any time, and is the gate's controller: at a stop it serves
the hub in the training thread until somebody says how to go on. The training never waits for the hub, except while it is stopped; and a
hub that is lost meanwhile is waited for only so long.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sonde.errors import SondeError, UsageError
from sonde.model.moment import Phase
from sonde.model.site import Site
from sonde.model.stop import Resume, Stop
from sonde.model.watchpoint import Hit
from sonde.protocol import messages
from sonde.protocol.address import Address
from sonde.protocol.link import Link
from sonde.protocol.messages import FromHub
from sonde.protocol.outbox import Outbox
from sonde.session.inspector import Inspector
from sonde.session.watchlist import Watchlist
from sonde.store.codec import hit_out, site_out
from sonde.store.files import plain
from sonde.store.liveness import machine
from sonde.watch.pattern import Pattern

log = logging.getLogger("sonde.agent")

PATIENCE = 60.0
"""Seconds that a stopped training waits for a hub that is lost; SONDE_HUB_PATIENCE."""
GOODBYE = 2.0
FIRST_CALL = 3.0
LARGEST_PART = 8 << 20
KINDS = {"continue", "step", "next", "nextop", "until", "finish", "quit"}
CAPABILITIES = [
    "read",
    "pause",
    "step",
    "next",
    "nextop",
    "until",
    "finish",
    "terminate",
    "watchpoints",
    "breakpoints",
    "tensors",
    "assign",
    "command",
]

Json = dict[str, Any]
Lines = list[list[Json]]
Ask = Callable[[Lines, str], str]


class Commands(Protocol):
    """The debugger's commands, for somebody elsewhere. In the training thread, during a stop."""

    def run(self, line: str, stop: Stop, ask: Ask) -> tuple[Lines, Resume | None]:
        """What it says, and how the training goes on if it does. `ask` shows what was said so far, and a question."""

    def complete(self, text: str) -> tuple[int, list[str]]: ...


class NotNow(Exception):
    """It could be done at another time."""


class Agent:
    """`request`s arrive in the link's thread; the rest is the training thread's. Never raises into the training."""

    def __init__(
        self, inspector: Inspector, address: Address, commands: Commands, *, epoch: Callable[[], int] = lambda: 0
    ) -> None:
        self.inspector, self.commands, self._epoch = inspector, commands, epoch
        self.session = inspector.session
        self.clients = 0
        self._pid = os.getpid()
        self._id = secrets.token_hex(8)
        self._outbox = Outbox()
        self._watchlist = Watchlist(self.session)
        self._jobs: queue.SimpleQueue[messages.Request] = queue.SimpleQueue()
        self._pending: deque[messages.Request] = deque()
        self._lock = threading.Lock()
        self._stop: Stop | None = None
        self._asking: messages.Request | None = None
        self._terminate = False
        self._hits = 0
        self._recent: deque[tuple[Hit, int]] = deque(maxlen=1000)
        self._moved = (0, time.monotonic(), "")
        self._speed: float | None = None
        try:
            self._patience = float(os.environ.get("SONDE_HUB_PATIENCE", PATIENCE))
        except ValueError:
            self._patience = PATIENCE
        self.link = Link(address, self._outbox, self._hello, self._receive, self._poll)

    def start(self) -> None:
        """Takes its places in the session, and begins to look for the hub."""
        for site in self.session.sites:
            self.site(site)
        self.session.writer.listener = self
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
        last = self._outbox.keep(messages.Bye, exit=plain(dict(exit)))
        if self.link.connected:
            self._outbox.settled(last, GOODBYE)
        self.link.close()

    # -- what is written to the recording --------------------------------------------------------

    def site(self, site: Site) -> None:
        self._outbox.site(site_out(site))

    def digests(self, rows: np.ndarray[Any, Any], first: int) -> None:
        self._outbox.digests(rows, first)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._outbox.scalars(int(step), {name: float(value) for name, value in values.items()})

    def hit(self, hit: Hit) -> None:
        ord, self._hits = self._hits, self._hits + 1
        self._recent.append((hit, ord))
        self._outbox.keep(messages.Hit, ord=ord, hit=plain(hit_out(hit)))

    def event(self, event: Json) -> None:
        self._outbox.keep(messages.Event, event=plain(event))

    # -- the gate's controller -------------------------------------------------------------------

    def __call__(self, stop: Stop) -> Resume:
        if os.getpid() != self._pid or not self._worth(stop):
            return Resume()
        with self._lock:
            self._stop = stop
        self._poll()
        self._latest_rows()  # first, so that whoever hears of the stop can look at it
        self._outbox.keep(messages.Stopped, stop=self._stop_out(stop))
        plan: Resume | None = None
        try:
            while plan is None:
                plan = self._turn(stop)
        finally:
            with self._lock:
                self._stop = None
                left = [self._jobs.get_nowait() for _ in range(self._jobs.qsize())]
            for request in left:
                self._refuse(request, "the training runs again; pause it first.")
            self._outbox.keep(messages.Resumed)
        return plan

    def _worth(self, stop: Stop) -> bool:
        """A stop that nobody has asked for just now is made only if somebody is there to see it."""
        if stop.reason in ("pause", "entry", "step", "next", "until", "finish", "line"):
            return True
        if self.link.connected and self.clients > 0:
            return True
        self.session.note("not-paused", reason=stop.reason, step=stop.moment.step, why="nobody is connected to the hub")
        return False

    def _turn(self, stop: Stop) -> Resume | None:
        """Serves one request, or waits for one."""
        request = self._next()
        if request is None:
            log.warning("the hub has been gone for %g s; the training goes on", self._patience)
            return Resume()
        return self._serve(request, stop)

    def _next(self) -> messages.Request | None:
        """None when the hub is lost for too long."""
        while True:
            try:
                return self._jobs.get(timeout=0.25)
            except queue.Empty:
                lost = self.link.lost_at
                if lost is not None and time.monotonic() - lost > self._patience:
                    return None

    def _serve(self, request: messages.Request, stop: Stop) -> Resume | None:
        """In the training thread."""
        try:
            if request.kind == "command":
                return self._command(request, stop)
            if request.kind == "resume":
                plan = self._plan(request.arguments, stop)
                self._answer(request, {"accepted": True, "state": "running", "step": self.session.steps.step})
                return plan
            result = self._inspect(request, stop)
            if result is not None:
                self._answer(request, result)
        except NotNow as problem:
            self._refuse(request, str(problem))
        except SondeError as problem:
            status = 409 if request.kind in ("tensor", "shape") else 422
            self._outbox.reply(messages.Reply(id=request.id, error=str(problem), status=status))
        except Exception as problem:
            sentence = f"Sonde failed here ({type(problem).__name__}: {problem}); the training is untouched."
            self._outbox.reply(messages.Reply(id=request.id, error=sentence, status=500))
        return None

    def _plan(self, arguments: Json, stop: Stop) -> Resume:
        kind = str(arguments.get("kind", "continue"))
        if kind not in KINDS:
            raise UsageError(f"{kind!r} is no way to go on; it may be {', '.join(sorted(KINDS))}.")
        sites = str(arguments.get("sites") or "")
        if kind == "until":
            if not sites:
                raise UsageError("until which site? For example until blocks.3.attn:grad.")
            Pattern.parse(sites)
        self._watchlist.apply()
        return Resume(kind, max(1, int(arguments.get("count") or 1)), sites)  # type: ignore[arg-type]

    def _command(self, request: messages.Request, stop: Stop) -> Resume | None:
        self._asking = request

        def ask(said: Lines, question: str) -> str:
            assert self._asking is not None
            self._answer(self._asking, {"output": said, "resumed": False, "prompt": question})
            while True:
                following = self._next()
                if following is None:
                    raise EOFError
                if following.kind == "command":
                    self._asking = following
                    return str(following.arguments.get("line", ""))
                if following.kind == "resume":
                    self._refuse(following, f"a command waits for an answer to {question!r}; give it first.")
                else:
                    self._serve(following, stop)

        said, plan = self.commands.run(str(request.arguments.get("line", "")), stop, ask)
        self._watchlist.take_over()
        self._answer(self._asking, {"output": said, "resumed": plan is not None, "prompt": None})
        if plan is not None and plan.kind != "quit":
            self._watchlist.apply()
        return plan

    def _inspect(self, request: messages.Request, stop: Stop) -> Any:
        given, inspector, gate = request.arguments, self.inspector, self.session.gate
        before = bool(given.get("before"))
        if request.kind == "complete":
            text = str(given.get("text", ""))
            length, options = self.commands.complete(text)
            return {"start": len(text) - length, "options": options[:200]}
        if request.kind == "assign":
            return {
                "message": inspector.assign(
                    str(given["address"]), index_in(given.get("index") or []), float(given["value"])
                )
            }
        if request.kind == "shape":
            shape, dtype = inspector.shape(str(given["address"]), before=before)
            return {"shape": list(shape), "dtype": dtype}
        if request.kind == "tensor":
            value = inspector.value(str(given["address"]), before=before, index=index_in(given.get("index") or []))
            array = np.ascontiguousarray(value.array)
            if array.nbytes > LARGEST_PART:
                raise UsageError(f"{array.nbytes} bytes are too many for one answer; {LARGEST_PART} are the most.")
            facts = {
                "address": value.address, "shape": list(array.shape), "numpy": array.dtype.str, "dtype": value.dtype,
                "note": value.note, "step": stop.moment.step if value.step is None else value.step,
            }  # fmt: skip
            self._outbox.reply(messages.Reply(id=request.id, result=facts, content=array.tobytes()))
            return None
        if request.kind == "tensors":
            return inspector.addresses()
        if request.kind == "break":
            words = {name: given[name] for name in ("sites", "file", "line", "condition", "once") if given.get(name)}
            return asdict(gate.add_breakpoint(**words))
        if request.kind == "unbreak":
            if not gate.remove_breakpoint(int(given["id"])):
                raise UsageError(
                    f"there is no breakpoint {given['id']}; there are: {', '.join(map(str, gate.breakpoints)) or 'none'}."
                )
            return {}
        raise UsageError(f"{request.kind!r} is not known here; use the same version of Sonde on both sides.")

    def _between_steps(self) -> None:
        """In the training thread, while it runs."""
        if os.getpid() != self._pid:
            return
        if self._terminate:
            self.session.end("asked to by the hub")
        try:
            if self._watchlist.changed:
                self._watchlist.apply()
            while self._pending:
                request = self._pending.popleft()
                self._serve(request, Stop("pause", self.session.moment))
        except Exception as problem:
            self.session.guard.contain("serving the hub", problem)

    def _latest_rows(self) -> None:
        """What was observed since the last write, for those who look at this stop."""
        rows = self.session.rows[: len(self.session.block)]
        if len(rows):
            self.session.settle(rows)
            self._outbox.digests(rows, self.session.writer.rows)

    # -- the link's threads ----------------------------------------------------------------------

    def _hello(self) -> messages.Hello:
        writer, facts = self.session.writer, self.session.writer.session
        manifest = Path(self.session.options.run)
        return messages.Hello(
            protocol=messages.PROTOCOL, session=self._id, run=run_id(manifest), name=manifest.name, rank=self.session.rank,
            rank_name=writer.folder.name, path=str(writer.folder.absolute()), machine=machine(),
            script=str(facts.get("script", "")), started=str(facts.get("started", "")), facts=plain(facts), capabilities=CAPABILITIES,
        )  # fmt: skip

    def _poll(self) -> None:
        session = self.session
        step, now = session.steps.step, time.monotonic()
        last, since, at = self._moved
        if step != last:
            if now - since > 0:
                recent = (step - last) / (now - since)
                self._speed = recent if self._speed is None else 0.7 * self._speed + 0.3 * recent
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._moved = (step, now, at)
        self._outbox.state(
            messages.State(
                step=step, phase=str(Phase(session.block.phase)), epoch=self._epoch(), steps_per_second=self._speed,
                overhead=round(session.policy.ratio - 1, 4), last_step_at=at or None,
            )
        )  # fmt: skip

    def _receive(self, message: FromHub) -> None:
        if isinstance(message, messages.Welcome):
            self.clients = message.clients
        elif isinstance(message, messages.Clients):
            self.clients = message.count
        elif isinstance(message, messages.Request):
            try:
                self._accept(message)
            except SondeError as problem:
                self._outbox.reply(messages.Reply(id=message.id, error=str(problem), status=422))
            except Exception as problem:
                sentence = f"Sonde failed here ({type(problem).__name__}: {problem}); the training is untouched."
                self._outbox.reply(messages.Reply(id=message.id, error=sentence, status=500))

    def _accept(self, request: messages.Request) -> None:
        """Answers at once what can be; hands the rest to the training thread, where it is stopped."""
        kind, given, gate = request.kind, request.arguments, self.session.gate
        stopped = self._stop is not None
        if kind in ("where", "pause", "pause_at", "terminate"):
            if kind == "pause" and not stopped:
                gate.request_pause()
            elif kind == "pause_at":
                self._pause_at(request, int(given["step"]))
                return
            elif kind == "terminate":
                self._terminate = True
                if stopped:
                    self._jobs.put(messages.Request(id=request.id, kind="resume", arguments={"kind": "quit"}))
                    return
            state = "stopped" if stopped else "running"
            self._answer(
                request,
                {"accepted": True, "state": state, "step": self.session.steps.step, "speed": self._speed or 0.0},
            )
        elif kind == "watchpoints":
            self._answer(request, self._watchlist.shown())
        elif kind == "watch":
            self._answer(
                request,
                self._watchlist.add(str(given["sites"]), str(given["condition"]), given.get("action", "report")),
            )
        elif kind == "rewatch":
            self._answer(request, self._watchlist.change(int(given["id"]), given))
        elif kind == "unwatch":
            self._watchlist.remove(int(given["id"]))
            self._answer(request, {})
        elif kind == "recommended":
            self._answer(request, self._watchlist.recommend())
        elif kind == "breakpoints":
            self._answer(request, [asdict(point) for point in list(gate.breakpoints.values())])
        else:
            with self._lock:
                if self._stop is not None:
                    self._jobs.put(request)
                    return
                if kind in ("break", "unbreak"):
                    self._pending.append(request)
                    return
            self._refuse(request, "the training runs; pause it first.")

    def _pause_at(self, request: messages.Request, step: int) -> None:
        """One step for all ranks. Too late where this one is past it; a rank that had stopped early for it goes on."""
        gate, stop = self.session.gate, self._stop
        if stop is not None and step > stop.moment.step and stop.reason == "pause":
            gate.request_pause_at(step)
            self._jobs.put(messages.Request(id=request.id, kind="resume", arguments={"kind": "continue"}))
            return
        gate.request_pause_at(step)  # first, so that a step that begins right now is not missed
        here = self.session.steps.step
        late = stop is None and here >= step
        if late:
            gate.request_pause_at(None)
        self._answer(
            request, {"accepted": not late, "state": "stopped" if stop is not None else "running", "step": here}
        )

    def _answer(self, request: messages.Request, result: Any) -> None:
        self._outbox.reply(messages.Reply(id=request.id, result=plain(result)))

    def _refuse(self, request: messages.Request, sentence: str) -> None:
        self._outbox.reply(messages.Reply(id=request.id, error=sentence, status=409))

    def _stop_out(self, stop: Stop) -> Json:
        ords = {id(hit): ord for hit, ord in self._recent}
        return {
            "reason": stop.reason, "step": stop.moment.step, "phase": str(stop.moment.phase), "call": stop.moment.call,
            "site": stop.site.address if stop.site is not None else None,
            "source": asdict(stop.source) if stop.source is not None else None, "modules": list(stop.modules),
            "hits": [{**plain(hit_out(hit)), "ord": ords.get(id(hit), -1)} for hit in stop.hits], "breakpoint": stop.breakpoint,
        }  # fmt: skip


def index_in(parts: list[Any]) -> tuple[Any, ...]:
    """Numbers, and [start, stop, step] for slices."""
    return tuple(slice(*part) if isinstance(part, list) else int(part) for part in parts)


def run_id(run: Path) -> str:
    from sonde.store.documents import read_json
    from sonde.store.format import MANIFEST

    try:
        return str(read_json(run / MANIFEST, dict)["id"])
    except (OSError, ValueError, KeyError):
        return run.name
