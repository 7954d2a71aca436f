"""Whole short runs, start to end: `tensonde run train.py` over `python train.py`, in interleaved pairs.

    python benchmarks/whole_runs.py                       100 steps of the GPT, the ResNet and a tiny MLP, and a script that only imports torch
    python benchmarks/whole_runs.py --models tiny --pairs 9

Each command is run as a user would type it, with everything that is on by default: start-up, the trace of the first step, experiments, the
summary at the end. Time is processor time of the command and all its children, and time on the clock. The summary's own words about overhead stand beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
TRAINING = """
import sys
sys.path.insert(0, {here!r})
import torch
from models import build

torch.set_num_threads({threads})
model, batches = build({model!r})
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
criterion = torch.nn.CrossEntropyLoss()
for step in range({steps}):
    x, y = batches[step % len(batches)]
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""
MODELS = {"import": "", "tiny": "0.5 ms", "resnet": "resnet", "gpt": "gpt"}


def took(command: list[str], folder: Path) -> tuple[float, float]:
    """Processor time and time on the clock."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def measure(name: str, pairs: int, steps: int, threads: int) -> str:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        code = TRAINING.format(here=str(HERE), threads=threads, model=MODELS[name], steps=steps)
        (folder / "train.py").write_text(code if MODELS[name] else "import torch\n")
        bare = [sys.executable, "train.py"]
        tensonde = str(Path(sys.executable).with_name("tensonde"))
        found: list[tuple[tuple[float, float], tuple[float, float]]] = []
        for k in range(pairs + 1):
            watched = [tensonde, "run", "--record", f"run{k}", "--report", f"report{k}.json", "train.py"]
            found.append((took(bare, folder), took(watched, folder)))
        found = found[1:]  # the first fills the caches of the disk
        said = json.loads((folder / f"report{pairs}.json").read_text())["overhead"]["ratio"]
    cells = [name, str(steps if MODELS[name] else 0)]
    for k in (0, 1):
        ratio = statistics.median(watched[k] / alone[k] for alone, watched in found)
        extra = statistics.median(watched[k] - alone[k] for alone, watched in found)
        cells.append(f"{statistics.median(alone[k] for alone, _ in found):.2f} s")
        cells.append(f"{ratio:.3f} (+{extra:.2f} s)")
    return "| " + " | ".join([*cells, "–" if said is None else f"{said:.3f}"]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    print("| run | steps | bare, processor | watched over bare | bare, clock | watched over bare | Tensonde says |")
    print("|---|---|---|---|---|---|---|")
    for name in given.models.split(","):
        print(measure(name, given.pairs, given.steps, given.threads), flush=True)


if __name__ == "__main__":
    main()
