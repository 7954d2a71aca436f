"""How long a digest takes, beside torch.sum and beside five separate torch reductions.

    python benchmarks/digest.py [--threads 2] [--dtype float32]

All contestants take turns, so that a busy machine slows them alike. Shown are the best times; `ratio` is ours
over torch.sum's, of the best and (in brackets) the median over the turns.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from tensonde.digest import Block, kernel_name

SIZES = (64, 1024, 16_384, 262_144, 1 << 24, 1 << 26)


def five_reductions(tensor: torch.Tensor) -> None:
    torch.aminmax(tensor)
    tensor.mean()
    tensor.std()
    tensor.norm()
    torch.isfinite(tensor).all()


def seconds(function, tensor, repeat: int) -> float:
    start = time.perf_counter()
    for _ in range(repeat):
        function(tensor)
    return (time.perf_counter() - start) / repeat


def contest(contestants, tensor: torch.Tensor) -> dict[str, list[float]]:
    size = tensor.numel()
    turns = 25 if size < 1 << 26 else 15
    repeat = max(1, min(5000, (1 << 20) // size))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(turns):
        for name, function in contestants.items():
            if name == "five" and size > 1 << 20 and turn > 2:
                continue  # too slow to wait for
            times[name].append(seconds(function, tensor, repeat))
    return times


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    block = Block(4096)
    block.threads = options.threads
    block.on_full = block.clear
    tap = block.tap(1)
    contestants = {
        "add": lambda tensor: block.add(1, tensor),
        "tap": tap,
        "torch.sum": torch.sum,
        "five": five_reductions,
    }
    print(f"kernel {kernel_name()}, {options.threads} threads, times in microseconds")
    print(f"{'dtype':9}{'elements':>10}{'add':>10}{'tap':>10}{'torch.sum':>11}{'five':>11}  ratio  GB/s")
    for dtype in options.dtype:
        for size in SIZES:
            tensor = torch.randn(size).to(getattr(torch, dtype))
            times = contest(contestants, tensor)
            best = {name: min(found) for name, found in times.items()}
            turns = [a / b for a, b in zip(times["add"], times["torch.sum"], strict=True)]
            columns = "".join(
                f"{best[name] * 1e6:{width}.2f}"
                for name, width in (("add", 10), ("tap", 10), ("torch.sum", 11), ("five", 11))
            )
            ratio = best["add"] / best["torch.sum"]
            rate = size * tensor.element_size() / best["add"] / 1e9
            print(f"{dtype:9}{size:10}{columns}  {ratio:.2f} ({statistics.median(turns):.2f}) {rate:.1f}")
    parameters = [torch.randn(64) for _ in range(200)]
    sites = list(range(200))
    many = min(seconds(lambda _: block.add_many(sites, parameters), None, 50) for _ in range(20)) / 200
    print(f"add_many: {many * 1e9:.0f} ns per tensor of 64 floats")


if __name__ == "__main__":
    main()
