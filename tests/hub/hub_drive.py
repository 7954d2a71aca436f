"""A hub and trainings as real processes, and what the tests say to them. Nothing here sleeps: all waiting is for messages."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launch import Foundry, Ran, environment
from tensonde.protocol.address import Address
from tensonde.protocol.client import Client, HubError, Live, Remote
from tensonde.session.options import Options
from tensonde.store.claim import create_run

LONG = 60.0
_numbers = itertools.count()
TRAINING = """
import hashlib, json, os, sys, time, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()
steps = int(sys.argv[1])
for step in range(steps):
    x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    if len(sys.argv) > 2 and os.path.exists(sys.argv[2]):
        break
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest(), step)
"""


class HubProcess:
    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        token: str | None = None,
        note: Path | None = None,
        more: Sequence[str] = (),
    ) -> None:
        words = [
            "--companion",
            "--no-open",
            "--port",
            str(port),
            *(["--token", token] if token else []),
            *more,
            str(folder),
        ]
        self.errors = open(folder / "hub.err", "a+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tensonde", "ui", *words], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            env=environment({"XDG_RUNTIME_DIR": str(note or folder)}), text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (folder / "hub.err").read_text()
        said = json.loads(line)
        self.address = Address(said["url"], said["token"], said.get("pin", ""))
        self.client = Client(self.address)

    @property
    def port(self) -> int:
        return int(self.address.url.rpartition(":")[2])

    def log(self) -> str:
        return Path(self.errors.name).read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            assert self.process.wait(10) == 0
        finally:
            self.process.kill()
            self.errors.close()


@contextmanager
def hub(folder: Path, **more: Any) -> Iterator[HubProcess]:
    made = HubProcess(folder, **more)
    try:
        yield made
    finally:
        made.close()


class Training:
    """A script under Tensonde, connected to a hub, in a fork of the foundry; it runs until told to end, or for so many steps."""

    def __init__(
        self, foundry: Foundry, folder: Path, hub: str, *, steps: int = 1_000_000, watch: Sequence[tuple[str, str]] = (),
        on_hit: Any = "report", env: Any = None, code: str | Path = TRAINING,
        argv: Sequence[str] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self.folder = folder / f"training-{next(_numbers)}"
        self.folder.mkdir()
        self.recording = create_run(self.folder, "run", {"script": "script.py", "argv": []})
        self.id = str(json.loads((self.recording / "run.json").read_text())["id"])
        self.hub = hub
        self._end = self.folder / "end"
        watches = tuple((sites, condition, on_hit) for sites, condition in watch)
        chosen = Options(run=str(self.recording), watches=watches, on_hit=on_hit, **{"budget": None, **options})
        variables = {**chosen.to_environment(), "TENSONDE_HUB": hub, "TENSONDE_HUB_PATIENCE": "20", **(env or {})}
        self._ran: list[Ran] = []
        words = [str(steps), str(self._end)] if argv is None else list(argv)

        def run() -> None:
            self._ran.append(foundry._run(code, self.folder, words, variables, self.recording, strict=True))

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """After the current step."""
        self._end.touch()

    def end(self, timeout: float = LONG) -> Ran:
        self._thread.join(timeout)
        assert self._ran, "the training did not end"
        return self._ran[0]


@contextmanager
def training(*args: Any, **kwargs: Any) -> Iterator[Training]:
    made = Training(*args, **kwargs)
    try:
        yield made
    finally:
        made.finish()
        if made._thread.is_alive() and made.hub:
            with contextlib.suppress(HubError):  # it may be stopped
                Client(Address.parse(made.hub)).post(f"/runs/{made.id}/control", {"action": "terminate"})
        made._thread.join(LONG)


class Timeline:
    """Messages in the order that they came; `until` waits for one that fits, and what came before stays to be looked at."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.seen: list[dict[str, Any]] = []

    def until(self, fits: Callable[[dict[str, Any]], bool], timeout: float = LONG) -> dict[str, Any]:
        end = time.monotonic() + timeout
        while True:
            message = self.live.receive(max(0.0, end - time.monotonic()))
            self.seen.append(message)
            if fits(message):
                return message

    def type(self, kind: str) -> dict[str, Any]:
        return self.until(lambda message: message["type"] == kind)

    def state(self, word: str) -> dict[str, Any]:
        return self.until(lambda message: message["type"] == "state" and message["state"]["state"] == word)

    def stopped(self) -> dict[str, Any]:
        """Waits for it, or learns that it is so already."""
        return self.until(lambda message: message["type"] == "state" and message["state"]["stop"] is not None)["state"]

    def connected(self, run: str | None = None, ranks: int = 1) -> tuple[str, list[str]]:
        """Waits for a run whose ranks are connected: its id, and their names."""

        def there(message: dict[str, Any]) -> bool:
            return message["type"] == "runs" and any(fits(entry) for entry in message["runs"])

        def fits(entry: dict[str, Any]) -> bool:
            return (run is None or entry["id"] == run) and sum(rank["connected"] for rank in entry["ranks"]) >= ranks

        found = next(entry for entry in self.until(there)["runs"] if fits(entry))
        return found["id"], [rank["name"] for rank in found["ranks"] if rank["connected"]]

    def follow(self, client: Client, run: str | None = None) -> Remote:
        """The first rank of a run that is connected, and subscribed to."""
        id, names = self.connected(run)
        self.live.subscribe(id, names[0])
        return client.place(id, names[0])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
