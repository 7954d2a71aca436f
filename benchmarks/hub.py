"""The hub under load: many live sessions, browsers that look on, and somebody who presses pause all the time.

    python benchmarks/hub.py                     16 sessions of 2,000 digests a second, 4 browsers, one minute
    python benchmarks/hub.py --seconds 600       the soak

The sessions are real ones (session, recording, agent, link) without a framework: digests and hits are written as a training would write them.
It fails where a hit is lost, where accepting a pause takes 100 ms or more at the 99th percentile, or where the hub's memory goes on growing.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from tensonde.digest.layout import ROW
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Role
from tensonde.model.watchpoint import Hit
from tensonde.protocol.address import Address
from tensonde.protocol.client import Client

SITES = 1000
FLUSH = 0.5
HITS_A_FLUSH = 5
LIMIT_MS = 100.0
PER_PROCESS = 4


# -- sessions, in processes of their own ---------------------------------------------------------------


def sessions(link: str, folder: str, count: int, rate: int) -> None:
    """Until there is a file `end`. Says on standard output how many hits each wrote."""
    threads, found = [], {}
    for k in range(count):
        thread = threading.Thread(
            target=one_session, args=(link, Path(folder) / f"{os.getpid()}-{k}", Path(folder) / "end", rate, found)
        )
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    print(json.dumps(found))


def one_session(link: str, parent: Path, end: Path, rate: int, found: dict[str, int]) -> None:
    from tensonde.session.agent import Agent
    from tensonde.session.options import Options
    from tensonde.session.session import Session
    from tensonde.store.claim import claim_rank, create_run

    run = create_run(parent, "run", {"script": "load.py", "argv": []})
    session = Session(Options(run=str(run), recommended=False), claim_rank(run, 0), {"rank": 0, "framework": "none"})
    for k in range(SITES):
        session.site(f"blocks.{k}", Role.OUT, Kind.MODULE, shape=(64, 64), dtype="float32")

    class Nothing:
        """Nothing can be inspected here, and nothing ever stops."""

        def __init__(self) -> None:
            self.session = session

        def together(self) -> None:
            return None

    agent = Agent(Nothing(), Address.parse(link), None)  # type: ignore[arg-type]
    agent.start()
    agent.link.wait(60)
    rows = np.zeros(int(rate * FLUSH), ROW)
    rows["site"] = np.arange(len(rows)) % SITES
    rows["count"], rows["phase"] = 4096, int(Phase.FORWARD)
    chance = np.random.default_rng(os.getpid())
    hits, due = 0, time.monotonic()
    while not end.exists():
        step = session.steps.step
        rows["step"] = step
        rows["norm"] = rows["absmax"] = chance.random(len(rows))
        session.writer.digests(rows)
        session.writer.scalars(step, {"loss": float(chance.random())})
        for k in range(HITS_A_FLUSH):
            session.writer.hit(Hit(1, f"blocks.{k}:out", Moment(step, Phase.FORWARD), "norm > 0", {}, {"norm": 1.0}))
            hits += 1
        session.steps.advance()
        session.on_step()
        due += FLUSH
        time.sleep(max(0.0, due - time.monotonic()))
    session.writer.close({"steps": session.steps.step})
    agent.close({})
    found[json.loads((run / "run.json").read_text())["id"]] = hits


# -- browsers ------------------------------------------------------------------------------------------


class Browser(threading.Thread):
    """Reads what it is shown of its places, and counts."""

    def __init__(self, address: Address, places: list[tuple[str, str]]) -> None:
        super().__init__(daemon=True)
        self.address, self.places = address, places
        self.hits: dict[str, set[int]] = {run: set() for run, _ in places}
        self.messages = 0
        self.digests = 0
        self.ending = threading.Event()

    def run(self) -> None:
        with Client(self.address).live(*self.places) as live:
            while not self.ending.is_set():
                try:
                    message = live.receive(0.5)
                except TimeoutError:
                    continue
                self.messages += 1
                if message["type"] == "hit":
                    self.hits[message["run"]].add(message["hit"]["ord"])
                elif message["type"] == "digests":
                    self.digests += len(message["sites"])


# -- the measurement -----------------------------------------------------------------------------------


def measure(*, count: int, rate: int, browsers: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        hub = subprocess.Popen(
            [sys.executable, "-m", "tensonde", "ui", "--companion", "--no-open", folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "XDG_RUNTIME_DIR": folder}, start_new_session=True,
        )  # fmt: skip
        assert hub.stdout is not None
        said = json.loads(hub.stdout.readline())
        address = Address(said["url"], said["token"])
        try:
            return _measure(hub.pid, address, folder, count, rate, browsers, seconds)
        finally:
            assert hub.stdin is not None
            hub.stdin.close()
            hub.wait(20)


def _measure(
    pid: int, address: Address, folder: str, count: int, rate: int, browsers: int, seconds: float
) -> dict[str, Any]:
    workers = []
    for first in range(0, count, PER_PROCESS):
        some = min(PER_PROCESS, count - first)
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import hub; hub.sessions({address.link!r}, {folder!r}, {some}, {rate})"
        workers.append(
            subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
        )
    places = connected(address, count)
    watching = [Browser(address, places[k::browsers]) for k in range(browsers)]
    for browser in watching:
        browser.start()
    began_cpu, began_waiting, began = cpu_seconds(pid), waited_seconds(pid), time.monotonic()
    latencies, memory = press_pause(address, places, pid, began + seconds)
    wall = time.monotonic() - began
    spent, waited = (cpu_seconds(pid) - began_cpu) / wall, (waited_seconds(pid) - began_waiting) / wall
    (Path(folder) / "end").touch()
    wrote: dict[str, int] = {}
    for worker in workers:
        out, _ = worker.communicate(timeout=seconds + 120)
        wrote.update(json.loads(out))
    client = Client(address)
    kept = {run: client.place(run, rank).get("hits", limit=1)["total"] for run, rank in places}
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(
        len(b.hits[run]) < wrote[run] - before
        for b in watching
        for run, _ in b.places
        for before in [min(b.hits[run], default=0)]
    ):
        time.sleep(0.1)
    for browser in watching:
        browser.ending.set()
    for browser in watching:
        browser.join(10)
    # A browser that came later than the first hits reads those with `after=`; from its first on it has seen every one.
    seen = {run: len(b.hits[run]) == wrote[run] - min(b.hits[run], default=0) for b in watching for run, _ in b.places}
    lost = sum(wrote[run] - kept[run] for run in wrote)
    ordered = sorted(latencies)
    tail = memory[len(memory) // 2 :]
    return {
        "sessions": count, "digests_per_second": count * rate, "browsers": browsers, "seconds": seconds,
        "pauses": len(ordered), "pause_ms": {"p50": at(ordered, 0.5), "p99": at(ordered, 0.99), "max": at(ordered, 1.0)},
        "hits": sum(wrote.values()), "hits_lost": lost, "browsers_missed_hits": sum(not whole for whole in seen.values()),
        "messages_to_browsers": sum(b.messages for b in watching), "hub_cpu": round(spent, 3), "hub_without_processor": round(waited, 3),
        "hub_rss_mb": {"first": memory[0], "middle": tail[0], "last": tail[-1]}, "load_average": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def connected(address: Address, count: int) -> list[tuple[str, str]]:
    with Client(address).live() as live:
        while True:
            message = live.receive(120)
            if message["type"] == "runs":
                there = [
                    (run["id"], rank["name"]) for run in message["runs"] for rank in run["ranks"] if rank["connected"]
                ]
                if len(there) >= count:
                    return there


def press_pause(
    address: Address, places: list[tuple[str, str]], pid: int, until: float
) -> tuple[list[float], list[float]]:
    """Milliseconds until accepted, each by a connection that is open already; and the hub's memory meanwhile."""
    parts = urlsplit(address.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    headers = {"Authorization": f"Bearer {address.token}", "Content-Type": "application/json"}
    latencies, memory = [], [rss_mb(pid)]
    while time.monotonic() < until:
        run, rank = random.choice(places)
        began = time.perf_counter()
        connection.request("POST", f"/api/runs/{run}/{rank}/control", b'{"action": "pause"}', headers)
        answer = connection.getresponse()
        body = json.loads(answer.read())
        latencies.append((time.perf_counter() - began) * 1e3)
        if answer.status != 200 or not body["accepted"]:
            raise RuntimeError(f"a pause was refused: {body}")
        memory.append(rss_mb(pid))
        time.sleep(0.02)
    return latencies, memory


def at(ordered: list[float], share: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)


def rss_mb(pid: int) -> float:
    return round(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def waited_seconds(pid: int) -> float:
    """How long its main thread could have run but had no processor: what other programs on the machine cost it."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) * 1e-9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=16)
    parser.add_argument("--rate", type=int, default=2000, help="digests a second, of each session")
    parser.add_argument("--browsers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    result = measure(count=given.sessions, rate=given.rate, browsers=given.browsers, seconds=given.seconds)
    print(json.dumps(result, indent=1))
    growth = result["hub_rss_mb"]["last"] - result["hub_rss_mb"]["middle"]
    wrong = [
        word
        for word, is_wrong in (
            ("hits were lost", result["hits_lost"] or result["browsers_missed_hits"]),
            ("pausing took too long", result["pause_ms"]["p99"] >= LIMIT_MS),
            ("the hub's memory grows", growth > 64),
        )
        if is_wrong
    ]
    if wrong:
        sys.exit("; ".join(wrong))


if __name__ == "__main__":
    main()
