"""Steps of half a millisecond and up, and a neural ODE: processor time per step under Tensonde over bare, next to what the summary says.

    python benchmarks/short_steps.py
    python benchmarks/short_steps.py --models '0.5 ms,neural ODE' --rounds 20

Each round starts three fresh processes, two bare and one under Tensonde, which take turns. One process differs from the next by
several per cent on most machines, whatever runs in it: the error is that of the mean over rounds, and `bare` is what the same
arithmetic says about the two bare processes. The start (the first step, and the steps that Tensonde sees whole before it measures)
is run before the first turn that counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from overhead import Side

STEPS = {"0.5 ms": 250, "1.3 ms": 250, "2.5 ms": 125, "5 ms": 60, "100 ms": 4, "neural ODE": 2}
"""Per turn."""
SETTLED = {"0.5 ms": 2000, "1.3 ms": 2000, "2.5 ms": 1500, "5 ms": 1500, "100 ms": 650, "neural ODE": 150}
TURNS = 12


@dataclass
class Round:
    ms: float
    watched: float
    """Watched over the mean of the two bare processes."""
    bare: float
    """One bare process over the other."""
    said: float
    rest: int


def play(model: str) -> Round:
    with tempfile.TemporaryDirectory() as folder:
        _, _, watched = sides = [Side(model, budget, 1, Path(folder)) for budget in (-1.0, -1.0, 0.05)]
        for side in sides:
            side.turn(SETTLED[model] if side is watched else 50)
        times: dict[int, list[float]] = {id(side): [] for side in sides}
        for k in range(TURNS):
            for side in (*sides[k % 3 :], *sides[: k % 3]):
                times[id(side)].append(side.turn(STEPS[model])["cpu"] / STEPS[model])
        for side in sides:
            side.end()
        assert watched.run is not None
        said = json.loads((watched.run / "rank0" / "session.json").read_text())["overhead"]
        a, b, w = (statistics.median(times[id(side)]) for side in sides)
        return Round(1e3 * (a + b) / 2, 2 * w / (a + b), a / b, said["ratio"], said.get("levels", {}).get("rest", 0))


def told(values: list[float]) -> str:
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values) / len(values) ** 0.5:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(STEPS))
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    print("| steps of | measured, ms | steps | processor time × | bare × | the summary says | steps at rest |")
    print("|---|---|---|---|---|---|---|")
    for model in options.models.split(","):
        rounds = [play(model) for _ in range(options.rounds)]
        print(
            f"| {model} | {statistics.median(r.ms for r in rounds):.2f} | {STEPS[model] * TURNS * len(rounds)} | "
            f"{told([r.watched for r in rounds])} | {told([r.bare for r in rounds])} | {told([r.said for r in rounds])} | "
            f"{statistics.median(r.rest for r in rounds):.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
