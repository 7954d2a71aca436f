"""What an asynchronous dump of all module outputs of the benchmark GPT costs, against the disk and against a bare training.

    python benchmarks/dump.py [--folder DIR] [--turns 12]

1. Speed: the outputs of one real step go through the dump again and again, without the computing in between, so that the
   dump is the bottleneck; in turns with plain sequential writes of as many bytes, buffered and direct (the faster counts).
   Target: at least 80 % of the raw speed.
2. Step time: a dumping and a bare training take turns, so that load hits both alike. Target, when the disk keeps up (no
   waits): at most 1.1 times the bare step.
"""

from __future__ import annotations

import argparse
import mmap
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from models import build
from overhead import Side

from tensonde.adapters.torch.dumping.staging import flat_bytes
from tensonde.session.dump.settings import from_command_line
from tensonde.store.dump.layout import claim_rank, create_dump
from tensonde.store.dump.writer import DumpWriter, Seen

CHUNK = 8 << 20


def raw(folder: Path, total: int, flags: int) -> float:
    """Bytes a second of plain writes, on disk when the clock stops for direct ones, in the cache for buffered ones."""
    path = folder / "raw"
    with mmap.mmap(-1, CHUNK) as buffer:
        buffer.write(os.urandom(CHUNK))
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flags, 0o644)
        except OSError:
            return 0.0
        began = time.perf_counter()
        for _ in range(total // CHUNK):
            os.write(fd, buffer)
        os.close(fd)
        took = time.perf_counter() - began
    path.unlink()
    return total / took


def outputs_of_a_step() -> list[tuple[str, torch.Tensor]]:
    model, batches = build("gpt")
    found: list[tuple[str, torch.Tensor]] = []
    for name, module in model.named_modules():

        def keep(_: Any, __: Any, out: torch.Tensor, name: str = name) -> None:
            found.append((name or "gpt", out.detach().clone()))

        module.register_forward_hook(keep)
    model(batches[0][0])
    return found


def dumped(folder: Path, outputs: list[tuple[str, torch.Tensor]], steps: int) -> tuple[float, int]:
    writer = DumpWriter(claim_rank(create_dump(folder / "speed", {}), 0), {})
    began = time.perf_counter()
    for step in range(steps):
        for name, tensor in outputs:
            seen = Seen(f"{name}:out", step, "forward", 0, "module", "", "float32", tuple(tensor.shape))
            writer.put(seen, flat_bytes(tensor))
        writer.end_step()
    writer.close()
    took = time.perf_counter() - began
    shutil.rmtree(folder / "speed")
    assert writer.failure is None
    return writer.bytes / took, writer.bytes


def speed(folder: Path, turns: int) -> None:
    outputs = outputs_of_a_step()
    steps = 10
    shares = []
    for _ in range(turns):
        there, size = dumped(folder, outputs, steps)
        plain = max(raw(folder, size, 0), raw(folder, size, getattr(os, "O_DIRECT", 0)))
        shares.append(there / plain)
        print(f"  dump {there / 1e6:6.0f} MB/s   raw {plain / 1e6:6.0f} MB/s   {there / plain:.0%}", flush=True)
    print(f"speed: {statistics.median(shares):.0%} of the raw sequential write speed (median; target ≥ 80 %)")


def step_time(folder: Path, turns: int, threads: int, at_once: int = 4) -> None:
    settings = from_command_line(("**:out",), None, folder / "steps")
    create_dump(folder / "steps", {})
    bare = Side("gpt", -1.0, threads, folder)
    watched = Side("gpt", 0.0, threads, folder)
    dumping = Side("gpt", 0.0, threads, folder, dump=settings.to_json())
    sides = (bare, watched, dumping)
    for side in sides:
        side.turn(3)
    ratios: dict[str, list[float]] = {"watched": [], "dumping": [], "dumping, cpu": []}
    for k in range(turns):
        answers = {id(side): side.turn(at_once) for side in (sides if k % 2 == 0 else sides[::-1])}
        b, w, d = (answers[id(side)] for side in sides)
        ratios["watched"].append(w["wall"] / b["wall"])
        ratios["dumping"].append(d["wall"] / b["wall"])
        ratios["dumping, cpu"].append(d["cpu"] / b["cpu"])
        for old in sorted((folder / "steps" / "rank_0" / "steps").glob("*.safetensors"))[:-6]:
            old.unlink()
    for side in sides:
        side.end()
    for name, found in ratios.items():
        low, middle, high = statistics.quantiles(found, n=4)
        print(f"step time, {name}: {middle:.3f} × bare ({low:.3f}–{high:.3f})")
    print(f"same loss: {d['loss'] == b['loss']}; target when the disk keeps up ≤ 1.1 × bare")
    print((folder / "steps" / "rank_0" / "dump.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="on the disk to measure (default: here)")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder or Path.cwd(), prefix=".dump-benchmark-") as folder:
        speed(Path(folder), max(3, options.turns // 2))
        step_time(Path(folder), options.turns, options.threads)


if __name__ == "__main__":
    main()
