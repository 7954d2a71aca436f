"""What the tools work on: a folder, the hub beside it, and the trainings that were started from here."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensonde.errors import UsageError
from tensonde.launch.companion import CompanionHub, answers
from tensonde.protocol.address import Address, read_note
from tensonde.protocol.client import Client, Remote
from tensonde.protocol.following import Follower

Json = dict[str, Any]
LOOK_AGAIN = 1.2
"""The hub looks for new recordings once per second."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run, at the hub that knows it."""

    client: Client
    run: Json

    @property
    def name(self) -> str:
        return str(self.run["name"])

    @property
    def path(self) -> Path:
        """Where the recording is. Raises UsageError where this machine cannot read it."""
        if not self.run.get("path"):
            raise UsageError(f"the recording of {self.name} is on another machine; ask there.")
        return Path(self.run["path"])


@dataclass(frozen=True, slots=True)
class Found(FoundRun):
    """A rank of it."""

    rank: Json

    @property
    def remote(self) -> Remote:
        return self.client.place(self.run["id"], self.rank["name"])


class Bench:
    """Any thread."""

    def __init__(self, folder: Path, *, allow_run: bool = False, hub: Address | None = None) -> None:
        """`hub` is one to use; without it, one is started when something is asked that needs it."""
        self.folder = folder.resolve()
        self.allow_run = allow_run
        self._given = hub
        self._companion: CompanionHub | None = None
        self._followers: dict[str, Follower] = {}
        self._lock = threading.RLock()

    # -- hubs ------------------------------------------------------------------------------------

    @property
    def address(self) -> Address:
        """Of the hub that trainings started from here join."""
        with self._lock:
            if self._given is not None:
                return self._given
            if self._companion is None:
                self._companion = CompanionHub(self.folder, lambda text: None, join=False)
            if self._companion.address is None:
                raise UsageError("no hub could be started; `tensonde ui` says why.")
            return self._companion.address

    def clients(self) -> list[Client]:
        """Our own hub's, and that of another hub which this user has started: a training in a terminal may have joined it."""
        own = self.address
        other = read_note()
        found = [own] if other is None or other.url == own.url or not answers(other) else [own, other]
        return [Client(address) for address in found]

    def follow(self, found: Found) -> None:
        """From now on somebody looks on, so that the training stops for hits."""
        with self._lock:
            url = found.client.address.url
            follower = self._followers.get(url)
            if follower is None:
                follower = self._followers[url] = Follower(found.client, lambda message: self._heard(url, message))
        follower.follow(found.run["id"], found.rank["name"])

    def _heard(self, url: str, message: Json) -> None:
        if message["type"] == "gone":
            with self._lock:
                self._followers.pop(url, None)

    def close(self) -> None:
        with self._lock:
            followers, self._followers = list(self._followers.values()), {}
            companion, self._companion = self._companion, None
        for follower in followers:
            follower.close()
        if companion is not None:
            companion.close()

    # -- runs ------------------------------------------------------------------------------------

    def runs(self) -> list[tuple[Client, Json]]:
        """Newest first; one that two hubs know, once: as the one that the training is connected to tells it."""
        found: dict[str, tuple[Client, Json]] = {}
        for client in self.clients():
            for run in client.runs():
                known = found.get(run["id"])
                if known is None or (not _connected(known[1]) and _connected(run)):
                    found[run["id"]] = (client, run)
        return sorted(found.values(), key=lambda entry: (entry[1]["started"] or "", entry[1]["id"]), reverse=True)

    def find(self, run: str = "", rank: int | None = None) -> Found:
        """A rank of a run, the first where none is named. Raises UsageError with what there is."""
        found = self.find_run(run)
        ranks = [one for one in found.run["ranks"] if rank is None or one["rank"] == rank]
        if not ranks and not found.run["ranks"]:
            raise UsageError(f"no training was seen in {found.name}: no module was called and no optimizer stepped.")
        if not ranks:
            there = ", ".join(str(one["rank"]) for one in found.run["ranks"])
            raise UsageError(f"{found.name} has no rank {rank}; its ranks are {there}.")
        return Found(found.client, found.run, ranks[0])

    def find_run(self, run: str = "") -> FoundRun:
        """By id or name, or how the name begins; nothing: the newest. Raises UsageError with what there is."""
        chosen = self._chosen(run)
        if chosen is None:
            time.sleep(LOOK_AGAIN)
            chosen = self._chosen(run)
        if chosen is None:
            names = [entry["name"] for _, entry in self.runs()]
            shown = f"the newest are {', '.join(names[:5])}" if names else "nothing was recorded in this folder so far"
            raise UsageError(f"there is no run {run!r} here; {shown}.")
        return FoundRun(*chosen)

    def _chosen(self, run: str) -> tuple[Client, Json] | None:
        runs = self.runs()
        if not run:
            return runs[0] if runs else None
        whole = [entry for entry in runs if run in (entry[1]["id"], entry[1]["name"])]
        begun = [entry for entry in runs if str(entry[1]["name"]).startswith(run)]
        return next(iter([*whole, *begun]), None)

    def state(self, found: Found) -> Json:
        """How the rank is now."""
        return found.remote.state()

    # -- files -----------------------------------------------------------------------------------

    def inside(self, path: str, what: str) -> Path:
        """A file of the folder, links followed. Raises UsageError for any other."""
        try:
            found = (self.folder / path).resolve()
        except (OSError, ValueError, RuntimeError):
            raise UsageError(f"{what} {path[:100]!r} is no path.") from None
        if not found.is_relative_to(self.folder):
            raise UsageError(f"{what} {path[:200]!r} is outside of {self.folder}, where this server works.")
        if not found.is_file():
            raise UsageError(f"there is no {what} {path[:200]!r} in {self.folder}.")
        return found

    def may_run(self) -> None:
        """Raises UsageError."""
        if not self.allow_run:
            raise UsageError(
                "this server starts no programs; its user has to start it with `tensonde mcp --allow-run` for that."
            )


def _connected(run: Json) -> bool:
    return any(rank["connected"] for rank in run["ranks"])
