"""Step time under Tensonde over bare step time: two live processes taking turns, so that load hits both alike.

    python benchmarks/overhead.py                       all models and modes
    python benchmarks/overhead.py --models mlp --modes everything --turns 40
    python benchmarks/overhead.py --models gpt --modes 'budget 5%' --threads 1 --ranks 2      under DistributedDataParallel
    python benchmarks/overhead.py --modes 'plain hooks,anomaly mode'      what people use today (peers.py)

A ratio is formed per pair of adjacent turns; the table shows the median of the pairs, of wall and of CPU time,
and their quartiles. The first row is bare against bare: its distance from 1 is the noise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import peers

from tensonde.launch.environment import watched_environment
from tensonde.session.options import Options
from tensonde.store.claim import create_run

HERE = Path(__file__).parent
STEPS = {"mlp": 20, "resnet": 1, "gpt": 1}
SETTLED = 30
"""Turns before the first that counts: where steps are short, Tensonde needs hundreds to know what it can afford."""
MODES: dict[str, float | None] = {"bare": -1.0, "sentinel": 0.0, "budget 5%": 0.05, "everything": None}
TARGETS = {
    ("sentinel", "mlp"): 1.08, ("sentinel", "resnet"): 1.02, ("sentinel", "gpt"): 1.02,
    ("everything", "mlp"): 1.5, ("everything", "resnet"): 1.08, ("everything", "gpt"): 1.08,
}  # fmt: skip


class Side:
    """One training process."""

    def __init__(
        self,
        model: str,
        budget: float | None,
        threads: int,
        folder: Path,
        dump: dict[str, Any] | None = None,
        peer: str = "",
        ranks: int = 0,
        python: str = sys.executable,
    ) -> None:
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        if ranks:
            environment["RANKS"] = str(ranks)
        self.run: Path | None = None
        if peer:
            environment["PEER"] = peer
        if budget != -1.0:
            self.run = create_run(folder, None, {"script": "worker.py", "argv": []})
            options = Options(run=str(self.run.absolute()), budget=budget, quiet=True, dump=dump, supervised=True)
            environment = watched_environment(options, environment)
        environment["WORKER"] = f"{model} {threads}"
        self.log = folder / f"{peer or 'side'}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                peers.command(peer, python, HERE / "worker.py", environment["WORKER"].split(), folder),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log if peer else None, env=environment, text=True,
            )  # fmt: skip

    def turn(self, steps: int) -> dict[str, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: its log says why
            self.process.stdin.write(f"{steps}\n")
            self.process.stdin.flush()
        for line in self.process.stdout:  # what starts the worker may have something to say as well
            if (start := line.find('{"wall"')) >= 0:
                answer: dict[str, float] = json.JSONDecoder().raw_decode(line[start:])[0]
                return answer
        raise RuntimeError((self.log.read_text().strip().splitlines() or ["it ended without a word"])[-1])

    def end(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


def duel(
    model: str, mode: str, turns: int, threads: int, ranks: int = 0, environments: Path | None = None
) -> dict[str, float]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        peer = mode if mode in peers.PEERS else ""
        python = (peers.python_of(peer, environments) if peer else None) or sys.executable
        bare = Side(model, -1.0, threads, Path(folder), ranks=ranks, python=python)
        watched = Side(model, MODES.get(mode, -1.0), threads, Path(folder), peer=peer, ranks=ranks, python=python)
        steps = STEPS[model]
        if peer:
            steps = 1 if peers.PEERS[peer].slow else max(1, steps // 4)
        for side in (bare, watched):
            side.turn(steps * (3 if peer or steps == 1 else SETTLED))
        ratios, cpu = [], []
        for k in range(turns):
            order = (bare, watched) if k % 2 == 0 else (watched, bare)
            answers = {id(side): side.turn(steps) for side in order}
            b, w = answers[id(bare)], answers[id(watched)]
            ratios.append(w["wall"] / b["wall"])
            cpu.append(w["cpu"] / b["cpu"])
        for side in (bare, watched):
            side.end()
        kept = sum(path.stat().st_size for path in watched.run.rglob("*") if path.is_file()) if watched.run else 0
        reported = 0.0
        if watched.run:
            session = json.loads((watched.run / "rank0" / "session.json").read_text())
            reported = session["overhead"]["ratio"]
        quartiles = statistics.quantiles(ratios, n=4)
        return {
            "ratio": statistics.median(ratios), "low": quartiles[0], "high": quartiles[2],
            "cpu": statistics.median(cpu), "memory_mb": (w["rss"] - b["rss"]) / 1024,
            "bytes_per_step": kept / w["steps"], "same_loss": w["loss"] == b["loss"], "reported": reported,
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp,resnet,gpt")
    parser.add_argument("--modes", help="default: all modes, and all peers that are installed")
    parser.add_argument("--peers", type=Path, help="the folder of `python benchmarks/peers.py`")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--ranks", type=int, default=0, help="processes under DistributedDataParallel; 0 for one without it"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    known = (*MODES, *peers.PEERS)
    modes = options.modes.split(",") if options.modes else [*MODES, *peers.installed(options.peers)]
    if unknown := [mode for mode in modes if mode not in known]:
        parser.error(f"no mode is called {unknown[0]!r}: {', '.join(known)}")
    results = []
    print("| mode | model | wall × (quartiles) | cpu × | Tensonde says | target | + peak MB | bytes/step | same loss |")
    print("|---|---|---|---|---|---|---|---|---|")
    for mode in modes:
        for model in options.models.split(","):
            turns = options.turns if model == "mlp" else max(8, options.turns // 2)
            try:
                r = duel(model, mode, turns, options.threads, options.ranks, options.peers)
            except RuntimeError as problem:
                print(f"| {mode} | {model} | failed: {problem} |", flush=True)
                continue
            results.append({"mode": mode, "model": model, **r})
            target = TARGETS.get((mode, model))
            print(
                f"| {mode} | {model} | {r['ratio']:.3f} ({r['low']:.3f}–{r['high']:.3f}) | {r['cpu']:.3f} | "
                f"{r['reported']:.3f} | {f'≤ {target}' if target else ''} | {r['memory_mb']:.0f} | "
                f"{r['bytes_per_step']:.0f} | {'yes' if r['same_loss'] else 'NO'} |",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
