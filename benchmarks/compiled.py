"""The compiled step under Tensonde over the compiled step without it: two live processes taking turns, as in overhead.py.

    python benchmarks/compiled.py                        every mode on the GPT
    python benchmarks/compiled.py --modes nodes --turns 40

`cold` is the time of the first step with empty caches, which is compilation, for both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tensonde.launch.environment import watched_environment
from tensonde.session.options import Options
from tensonde.store.claim import create_run

HERE = Path(__file__).parent
MODES = ("bare", "auto", "nodes", "full")
TARGETS = {"nodes": 1.05, "full": 1.10}


class Side:
    """One training process, with caches of its own."""

    def __init__(self, model: str, mode: str, threads: int, folder: Path) -> None:
        cache = tempfile.mkdtemp(dir=folder)
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "COMPILED": "1"}
        if mode != "bare":
            run = create_run(folder, None, {"script": "worker.py", "argv": []})
            options = Options(run=str(run.absolute()), graph=mode, quiet=True)  # type: ignore[arg-type]
            environment = watched_environment(options, environment)
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), model, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip

    def turn(self, steps: int) -> dict[str, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        answer: dict[str, float] = json.loads(self.process.stdout.readline())
        return answer

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def duel(model: str, mode: str, turns: int, threads: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        bare = Side(model, "bare", threads, Path(folder))
        cold_bare = bare.turn(1)
        watched = Side(model, mode, threads, Path(folder))
        cold = watched.turn(1)
        for side in (bare, watched):
            side.turn(3)
        wall, cpu = [], []
        for k in range(turns):
            order = (bare, watched) if k % 2 == 0 else (watched, bare)
            answers = {id(side): side.turn(1) for side in order}
            b, w = answers[id(bare)], answers[id(watched)]
            wall.append(w["wall"] / b["wall"])
            cpu.append(w["cpu"] / b["cpu"])
        for side in (bare, watched):
            side.end()
        quartiles = statistics.quantiles(wall, n=4)
        return {
            "ratio": statistics.median(wall), "low": quartiles[0], "high": quartiles[2], "cpu": statistics.median(cpu),
            "cold": cold["wall"], "cold_bare": cold_bare["wall"], "same_loss": w["loss"] == b["loss"],
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gpt")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    print("| --graph | model | wall × (quartiles) | cpu × | target | first step, s (bare) | same loss |")
    print("|---|---|---|---|---|---|---|")
    for mode in options.modes.split(","):
        for model in options.models.split(","):
            r = duel(model, mode, options.turns, options.threads)
            target = TARGETS.get(mode)
            print(
                f"| {mode} | {model} | {r['ratio']:.3f} ({r['low']:.3f}–{r['high']:.3f}) | {r['cpu']:.3f} | "
                f"{f'≤ {target}' if target else ''} | {r['cold']:.0f} ({r['cold_bare']:.0f}) | "
                f"{'yes' if r['same_loss'] else 'NO'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
