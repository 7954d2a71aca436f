"""One hub and very many ranks of one training, simulated: each has 50 sites and takes one step per second.

    python benchmarks/many_ranks.py                          1,024 agents, 20 seconds
    python benchmarks/many_ranks.py --agents 128 --seconds 10

The agents are connections that speak the protocol (hello, sites, digests, state, stops), without a training behind them. It prints the hub's memory and processor
time, how long a pause of all ranks takes until the last one was told, and what the hub has kept of all that it was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import websockets

from tensonde.digest.layout import ROW
from tensonde.protocol import messages
from tensonde.protocol.address import Address
from tensonde.protocol.client import Client
from tensonde.protocol.codec import decode_from_hub, encode

SITES = 50


class Rank:
    """One agent: its step grows once per second, unless it is stopped."""

    def __init__(self, number: int, world: int) -> None:
        self.number, self.world = number, world
        self.step = self.sent = self.seq = 0
        self.aim: int | None = None
        self.told_at = 0.0
        self.tries = 0
        self.connected = self.stopped = False

    async def run(self, address: Address, begin: asyncio.Event, end: asyncio.Event) -> None:
        headers = {"Authorization": f"Bearer {address.token}"}
        async with websockets.connect(
            f"{address.socket}/api/agent", additional_headers=headers, compression=None, open_timeout=120, proxy=None
        ) as socket:
            name = f"rank{self.number}"
            hello = messages.Hello(
                protocol=messages.PROTOCOL, session=f"s{self.number}", run="many", name="many", rank=self.number,
                rank_name=name, path="", machine="elsewhere", capabilities=["pause"],
            )  # fmt: skip
            await socket.send(encode(hello))
            sites = [
                {"id": k, "name": f"blocks.{k}", "role": "out", "kind": "module", "shape": [64], "dtype": "float32"}
                for k in range(SITES)
            ]
            await socket.send(encode(messages.Sites(sites=sites)))
            reading = asyncio.create_task(self._read(socket))
            self.connected = True
            await begin.wait()  # ranks of one training wait for each other, so none is steps ahead
            await asyncio.sleep(self.number % 100 / 100)
            while not end.is_set():
                await self._step(socket)
                await asyncio.sleep(1.0)
            reading.cancel()

    async def _step(self, socket: Any) -> None:
        if not self.stopped:
            rows = np.zeros(SITES, ROW)
            rows["site"], rows["step"], rows["norm"] = np.arange(SITES), self.step, self.step
            ords = np.arange(SITES, dtype=np.int64) + self.sent
            self.sent += SITES
            await socket.send(encode(messages.Digests(ords=ords.tobytes(), rows=rows.tobytes())))
            self.step += 1
        together = {"world": self.world, "backend": "none", "timeout": 1800.0}
        await socket.send(encode(messages.State(step=self.step, steps_per_second=1.0, together=together)))
        if self.aim is not None and self.step >= self.aim and not self.stopped:
            self.stopped, self.aim = True, None
            self.seq += 1
            await socket.send(
                encode(
                    messages.Stopped(
                        seq=self.seq, stop={"reason": "pause", "step": self.step, "phase": "forward", "call": 0}
                    )
                )
            )

    async def _read(self, socket: Any) -> None:
        async for frame in socket:
            request = decode_from_hub(frame)
            if not isinstance(request, messages.Request):
                continue
            accepted = True
            if request.kind == "pause_at":
                aim, self.told_at = int(request.arguments["step"]), time.monotonic()
                accepted = self.step < aim  # as an agent does
                self.aim = aim if accepted else None
                self.tries += 1
                if self.stopped and accepted:
                    self.stopped = False
                    self.seq += 1
                    await socket.send(encode(messages.Resumed(seq=self.seq)))
            elif request.kind == "release":
                self.stopped, self.aim = False, None
                self.seq += 1
                await socket.send(encode(messages.Resumed(seq=self.seq)))
            result = {
                "accepted": accepted,
                "state": "stopped" if self.stopped else "running",
                "step": self.step,
                "speed": 1.0,
            }
            await socket.send(encode(messages.Reply(id=request.id, result=result)))


def usage(pid: int) -> tuple[float, float]:
    """Seconds of processor time, and MiB of memory."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def measure(address: Address, pid: int, agents: int, seconds: float) -> None:
    begin, end, client = asyncio.Event(), asyncio.Event(), Client(address)
    ranks = [Rank(k, agents) for k in range(agents)]
    tasks = [asyncio.create_task(rank.run(address, begin, end)) for rank in ranks]
    began = time.monotonic()
    while not all(rank.connected for rank in ranks):
        await asyncio.sleep(0.1)
    print(f"{agents} agents connected after {time.monotonic() - began:.1f} s")
    begin.set()
    before, own = usage(pid), time.process_time()
    await asyncio.sleep(seconds)
    after, own = usage(pid), time.process_time() - own
    print(
        f"processor time of the hub: {100 * (after[0] - before[0]) / seconds:.0f} % of one core; memory {after[1]:.0f} MiB; "
        f"of the simulated agents: {100 * own / seconds:.0f} %"
    )
    steps = [rank.step for rank in ranks]
    print(f"before the pause the ranks are at steps {min(steps)} to {max(steps)}")
    asked, busy, own = time.monotonic(), usage(pid)[0], time.process_time()
    answer = await asyncio.to_thread(client.post, "/runs/many/control", {"action": "pause"})
    answered = time.monotonic()
    print(
        f"meanwhile the hub worked for {usage(pid)[0] - busy:.2f} s, the agents for {time.process_time() - own:.2f} s"
    )
    told = max(rank.told_at for rank in ranks)
    print(
        f"pause: {answer}, the last rank was told after {told - asked:.2f} s, the answer came after {answered - asked:.2f} s"
    )
    while not all(rank.stopped for rank in ranks):
        await asyncio.sleep(0.1)
    print(f"the hub proposed {max(rank.tries for rank in ranks)} steps to stop at")
    print(f"all stopped at step {sorted({rank.step for rank in ranks})} after {time.monotonic() - asked:.1f} s")
    kept = await asyncio.to_thread(
        client.get, "/runs/many/rank0/digests", site="blocks.0:out", fields="norm", points=100000
    )
    print(f"of {ranks[0].step} steps of a site, the hub has {len(kept['step'])}")
    await asyncio.to_thread(client.post, "/runs/many/control", {"action": "continue"})
    end.set()
    await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        hub = subprocess.Popen(
            [sys.executable, "-m", "tensonde", "ui", "--companion", "--no-open", folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "XDG_RUNTIME_DIR": folder},
        )  # fmt: skip
        assert hub.stdout is not None
        said = json.loads(hub.stdout.readline())
        try:
            asyncio.run(measure(Address(said["url"], said["token"]), hub.pid, given.agents, given.seconds))
        finally:
            hub.kill()


if __name__ == "__main__":
    main()
