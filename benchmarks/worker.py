"""One side of a duel: a plain training that runs as many steps as it is told on standard input."""

from __future__ import annotations

import json
import os
import resource
import sys
import time

import peers
import torch
from models import Flow, build, integrated

model, batches = build(sys.argv[1])
torch.set_num_threads(int(sys.argv[2]))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
if os.environ.get("COMPILED"):
    model = torch.compile(model)
criterion = torch.nn.CrossEntropyLoss()
ended_step = peers.watch(os.environ["PEER"], model) if "PEER" in os.environ else None
done = 0
losses = []


def steps(count: int) -> None:
    global done
    for _ in range(count):
        x, y = batches[done % len(batches)]
        optimizer.zero_grad()
        loss = criterion(integrated(model, x) if isinstance(model, Flow) else model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if ended_step is not None:
            ended_step(done)
        done += 1


def waited(nanoseconds: int) -> None:
    """The wait for the other side's turn is no time of a step: Tensonde would spend its share of that, too."""
    install = sys.modules.get("tensonde.adapters.torch.seams.install")
    if install is not None and (observer := install.current()) is not None:
        observer.session._step_began += nanoseconds
        observer.session._last_flush += nanoseconds


ended = time.perf_counter_ns()
for line in sys.stdin:
    waited(time.perf_counter_ns() - ended)
    wall, cpu = time.perf_counter(), time.process_time()
    steps(int(line))
    answer = {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "loss": losses[-1],
        "steps": done,
    }
    print(json.dumps(answer), flush=True)
    ended = time.perf_counter_ns()
