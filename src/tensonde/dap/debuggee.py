"""The training that an editor debugs: started from here or found at a hub, its ranks as threads."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from tensonde.errors import UsageError
from tensonde.launch.companion import CompanionHub
from tensonde.protocol.address import Address, from_environment, read_note
from tensonde.protocol.client import Client, HubError, Remote
from tensonde.protocol.following import Follower, Message
from tensonde.store.claim import default_name
from tensonde.store.resolve import RUNS

Json = dict[str, Any]
Say = Callable[[str, str], None]
"""A category of output (stdout, stderr, console) and a text."""
START_SECONDS = 120.0
"""Until a program trains, unless `timeout` says otherwise."""
ENDING_SECONDS = 10.0
POLL = 0.1


class Debuggee:
    """`told` is called in other threads, with the hub's messages about this run."""

    def __init__(self, say: Say, told: Callable[[Message], None]) -> None:
        self._say, self._told = say, told
        self._hub: CompanionHub | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._follower: Follower | None = None
        self.client: Client | None = None
        self.run: Json = {}
        self.ended = threading.Event()

    # -- beginning -------------------------------------------------------------------------------

    def launch(self, arguments: Json) -> None:
        """Blocks until the training stands before its first step. Raises UsageError."""
        folder, name, target = target_of(arguments)
        self._hub = CompanionHub(folder, lambda text: None, join=False)
        if self._hub.address is None:
            raise UsageError("no hub could be started; `tensonde ui` says why.")
        self.client = Client(self._hub.address)
        options = [str(word) for word in arguments.get("tensondeArgs") or []]
        words = [*options, "--ui", "--record", str(RUNS / name), *target]
        given = {str(key): str(value) for key, value in (arguments.get("env") or {}).items()}
        python = str(arguments.get("python") or sys.executable)
        self._process = subprocess.Popen(
            [python, "-m", "tensonde", "debug", *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **given, "TENSONDE_HUB": self._hub.address.link}, start_new_session=True,
        )  # fmt: skip
        for category, stream in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            assert stream is not None
            threading.Thread(target=self._pump, args=(category, stream), daemon=True).start()
        threading.Thread(target=self._await, daemon=True).start()
        self._find(name, int(arguments.get("ranks") or 1), float(arguments.get("timeout") or START_SECONDS))
        self._follow()

    def attach(self, arguments: Json) -> None:
        """Raises UsageError."""
        url = arguments.get("url")
        address = Address.parse(str(url)) if url else from_environment() or read_note()
        if address is None:
            raise UsageError("no hub is known; give its `url`, or start a training with `tensonde run --ui train.py`.")
        self.client = Client(address)
        wanted = str(arguments.get("run") or "")
        live = [run for run in self.client.runs() if any(rank["connected"] for rank in run["ranks"])]
        fitting = [
            run for run in live if not wanted or wanted in (run["id"], run["name"]) or run["name"].startswith(wanted)
        ]
        if not fitting:
            raise UsageError("no such training is connected to this hub; `tensonde attach --list` shows what is there.")
        self.run = fitting[0]
        self._follow()

    def _find(self, name: str, count: int, seconds: float) -> None:
        """Until so many ranks of it have stopped before their first step."""
        assert self.client is not None
        until = time.monotonic() + seconds
        while not self.ended.wait(POLL):
            for run in self.client.runs():
                stopped = [rank for rank in run["ranks"] if rank["connected"] and rank["state"] == "stopped"]
                if run["name"] == name and len(stopped) >= count:
                    self.run = run
                    return
            if time.monotonic() > until:
                raise UsageError(f"the program has not begun to train within {seconds:g} s.")
        raise UsageError("the program ended before it began to train; its output says more.")

    def _follow(self) -> None:
        assert self.client is not None
        self._follower = Follower(self.client, self._heard)
        for rank in self.run["ranks"]:
            self._follower.follow(self.run["id"], rank["name"])

    def _heard(self, message: Message) -> None:
        if message["type"] == "runs":
            for run in message["runs"]:
                if run["id"] == self.run["id"]:
                    self.run = run
                    for rank in run["ranks"]:  # one that has come later
                        assert self._follower is not None
                        self._follower.follow(run["id"], rank["name"])
        self._told(message)

    # -- while it is there -----------------------------------------------------------------------

    @property
    def ranks(self) -> list[Json]:
        return [rank for rank in self.run.get("ranks", []) if rank["connected"]]

    def place(self, thread: int) -> Remote:
        """Of a thread's number, which is the rank's and one more. Raises UsageError."""
        for rank in self.ranks:
            if rank["rank"] == thread - 1:
                assert self.client is not None
                return self.client.place(self.run["id"], rank["name"])
        raise UsageError(f"there is no rank {thread - 1} any more.")

    def places(self) -> list[Remote]:
        assert self.client is not None
        return [self.client.place(self.run["id"], rank["name"]) for rank in self.ranks]

    def control(self, action: str) -> None:
        """For all ranks, which must go on together where they wait for each other."""
        assert self.client is not None
        self.client.post(f"/runs/{self.run['id']}/control", {"action": action})

    # -- the end ---------------------------------------------------------------------------------

    def close(self, *, terminate: bool) -> None:
        """A training that was attached to goes on, unless it is to be terminated."""
        with contextlib.suppress(HubError, UsageError):
            if self.client is not None and self.run:
                if terminate:
                    self.control("terminate")
                for place in self.places():
                    if place.state()["state"] == "stopped":
                        place.control("continue")
        if self._process is not None and self._process.poll() is None and terminate:
            try:
                self._process.wait(ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        if self._follower is not None:
            self._follower.close()
        if self._hub is not None:
            self._hub.close()

    def _pump(self, category: str, stream: IO[bytes]) -> None:
        for line in stream:
            self._say(category, line.decode(errors="replace"))

    def _await(self) -> None:
        assert self._process is not None
        code = self._process.wait()
        self.ended.set()
        self._told({"type": "exited", "code": code if code >= 0 else 128 - code})


def target_of(arguments: Json) -> tuple[Path, str, list[str]]:
    """Where to run, a name for the run, and what stands after the options of `tensonde debug`. Raises UsageError."""
    program, module = arguments.get("program"), arguments.get("module")
    if not isinstance(program, str) and not isinstance(module, str):
        raise UsageError("launch needs `program`, the path of a training script, or `module`.")
    what = str(program or module)
    folder = Path(arguments.get("cwd") or (Path(what).absolute().parent if program else Path.cwd()))
    if program and not (folder / what).is_file():
        raise UsageError(f"there is no program {what} in {folder}.")
    words = [what] if program else ["-m", what]
    launcher = [str(word) for word in arguments.get("launcher") or []]
    return folder, default_name(what), [*launcher, *words, *map(str, arguments.get("args") or [])]
