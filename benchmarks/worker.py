"""One side of a duel: a plain training that runs as many steps as it is told on standard input. With `RANKS`, it is that many processes under
DistributedDataParallel, of which the first tells the others. (No `__future__` here: TrainCheck puts its own lines first.)"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import peers
import torch
from models import Flow, build, integrated

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # some peers print
name, threads = sys.argv[1:] or os.environ["WORKER"].split()
model, batches = build(name)
torch.set_num_threads(int(threads))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
others: list[subprocess.Popen[str]] = []
if ranks := int(os.environ.get("RANKS", "0")):
    if "RANK" not in os.environ:
        os.environ |= {"RANK": "0", "MEET": f"file://{tempfile.mkdtemp()}/meet"}
        others = [
            subprocess.Popen(
                [sys.executable, *sys.argv],
                env={**os.environ, "RANK": str(k)},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
            )
            for k in range(1, ranks)
        ]
    torch.distributed.init_process_group(
        "gloo", init_method=os.environ["MEET"], rank=int(os.environ["RANK"]), world_size=ranks
    )
    model = torch.nn.parallel.DistributedDataParallel(model)
if os.environ.get("COMPILED"):
    model = torch.compile(model)
criterion = torch.nn.CrossEntropyLoss()
ended_step = peers.watch(os.environ["PEER"], model, optimizer, criterion) if "PEER" in os.environ else None
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
            ended_step(done, losses[-1])
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
    for other in others:
        assert other.stdin is not None
        other.stdin.write(line)
        other.stdin.flush()
    wall, cpu = time.perf_counter(), time.process_time()
    steps(int(line))
    answer = {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "loss": losses[-1],
        "steps": done,
    }
    print(json.dumps(answer), file=answers, flush=True)
    ended = time.perf_counter_ns()
for other in others:
    other.communicate()
