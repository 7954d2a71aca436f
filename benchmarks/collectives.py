"""What it costs to note a collective: `tensonde run --quiet benchmarks/collectives.py`.

Two ranks train a small model with 100 collectives per step. Steps with the functions that Tensonde has wrapped take turns with steps that call
torch's own; processor time of the training thread is compared, so that other work on the machine matters little.
"""

from __future__ import annotations

import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.multiprocessing as mp
from torch import nn

CALLS, ROUNDS = 100, 60


def spent(rank: int, world: int, meet: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world)
    model = nn.Linear(32, 32)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, 32)
    group = dist.group.WORLD

    def step(reduce, again, wait) -> tuple[float, float]:
        opt.zero_grad()
        model(x).square().mean().backward()
        began, wall = time.thread_time(), time.perf_counter()
        for _ in range(CALLS // 2):
            reduce(model.weight.grad)
        for _ in range(CALLS // 2):
            wait(again(model.bias.grad, "sum", group))
        took = time.thread_time() - began, time.perf_counter() - wall
        model.weight.grad.zero_()
        opt.step()
        return took

    def settled(result):
        return result.wait() if hasattr(result, "wait") else result

    bare = [
        getattr(one, "__wrapped__", one) for one in (dist.all_reduce, functional.all_reduce, functional.wait_tensor)
    ]
    found: dict[str, list[tuple[float, float]]] = {"observed": [], "bare": []}
    for k in range(2 * ROUNDS + 6):
        if k % 2:
            took = step(dist.all_reduce, functional.all_reduce, settled)
        else:
            ours = functional.wait_tensor
            functional.wait_tensor = bare[2]
            took = step(bare[0], bare[1], settled)
            functional.wait_tensor = ours
        if k >= 6:
            found["observed" if k % 2 else "bare"].append(took)
    if rank == 0:
        cpu = {name: statistics.median(one for one, _ in times) for name, times in found.items()}
        wall = {name: statistics.median(one for _, one in times) for name, times in found.items()}
        extra = cpu["observed"] - cpu["bare"]
        print(f"{1e6 * extra / CALLS:.1f} µs of processor time per call (bare {1e6 * cpu['bare'] / CALLS:.1f} µs)")
        print(f"{100 * extra / wall['bare']:.2f} % of {1e3 * wall['bare']:.1f} ms, the time of {CALLS} bare calls")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(spent, args=(2, f"file://{folder}/meet"), nprocs=2, start_method="fork")
