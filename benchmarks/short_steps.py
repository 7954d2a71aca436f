"""Steps of half a millisecond and up, and a neural ODE: processor time per step under Tensonde over bare, next to what the summary says.

    python benchmarks/short_steps.py
    python benchmarks/short_steps.py --models '0.5 ms,neural ODE' --turns 40

Two live processes take turns, as in overhead.py. The start (the first step, and the steps that Tensonde sees whole before it
measures) is run before the first turn that counts. `bare` is a second bare process against the first: its distance from 1 is the noise.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from overhead import Side

STEPS = {"0.5 ms": 500, "1.3 ms": 500, "2.5 ms": 250, "5 ms": 100, "100 ms": 8, "neural ODE": 4}
"""Per turn."""
SETTLED = {"0.5 ms": 2000, "1.3 ms": 2000, "2.5 ms": 1500, "5 ms": 1500, "100 ms": 650, "neural ODE": 150}
TURNS = {"100 ms": 0.8, "neural ODE": 1.5}


def duel(model: str, turns: int, *, bare: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        sides = [Side(model, -1.0, 1, Path(folder)), Side(model, -1.0 if bare else 0.05, 1, Path(folder))]
        for side in sides:
            side.turn(SETTLED[model] if not bare else 50)
        steps, ratios, times = STEPS[model], [], []
        for k in range(turns):
            order = sides if k % 2 == 0 else sides[::-1]
            answers = {id(side): side.turn(steps) for side in order}
            base, other = (answers[id(side)] for side in sides)
            ratios.append(other["cpu"] / base["cpu"])
            times.append(base["cpu"] / steps)
        for side in sides:
            side.end()
        said: dict[str, float] = {}
        run = sides[1].run
        if run is not None:
            said = json.loads((run / "rank0" / "session.json").read_text())["overhead"]
        low, middle, high = statistics.quantiles(ratios, n=4)
        return {
            "ms": 1e3 * statistics.median(times), "ratio": middle, "low": low, "high": high, "steps": steps * turns,
            "error": 1.57 * (high - low) / len(ratios) ** 0.5,
            "said": said.get("ratio", 0.0), "uncertainty": said.get("uncertainty") or 0.0, "same": other["loss"] == base["loss"],
            "rest": said.get("levels", {}).get("rest", 0),
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(STEPS))
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--noise", action="store_true", help="a second bare process against the first, as well")
    options = parser.parse_args()
    print(
        "| steps of | measured, ms | steps | processor time × (quartiles; standard error) | the summary says | at rest | same loss |"
    )
    print("|---|---|---|---|---|---|---|")
    for model in options.models.split(","):
        for bare in (True, False) if options.noise else (False,):
            turns = max(8, int(options.turns * TURNS.get(model, 1)))
            r = duel(model, turns, bare=bare)
            said = "(bare)" if bare else f"{r['said']:.3f} ± {r['uncertainty']:.3f}"
            print(
                f"| {model} | {r['ms']:.2f} | {r['steps']:.0f} | {r['ratio']:.3f} ({r['low']:.3f}–{r['high']:.3f}; {r['error']:.3f}) | "
                f"{said} | {r['rest']:.0f} | {'yes' if r['same'] else 'NO'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
