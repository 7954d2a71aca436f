"""How early divergence is announced, and how often without reason.

    python benchmarks/early_warning.py [--only 'ramp_*'] [--seed 0] [--trainscope FOLDER]

Each training of `early_warning_trainings.py` and `early_warning_held_out.py` runs under `tensonde run` as it is, and the recording says at which
step `weight_runaway` held first. The line on the terminal follows within half a second. The loss *shows* that a training diverges where it leaves its
range (`left_range` of diagnose/analysis/divergence.py): the first of three losses in a row that exceed the largest of the best thirty in a row before
them by more than those thirty differ among themselves. The lead is counted from the announcement to that step.

`--trainscope` is a folder with the package trainscope, whose detector (its default, CUSUM on the loss) is given the same losses. It announces falls
of the loss as well; only rises are counted here.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from statistics import median

import early_warning_held_out
import early_warning_trainings

from tensonde.diagnose.analysis.divergence import left_range
from tensonde.store.reader import Recording
from tensonde.watch.announcing import RUNAWAY

HERE = Path(__file__).resolve().parent


def trainings() -> Iterator[tuple[str, str, str, str]]:
    """Which set, whether it diverges, which file, which training."""
    for name, runs in (("studied", early_warning_trainings.STUDIED), ("studied", early_warning_trainings.SECOND)):
        for kind, made in runs.items():
            yield from ((name, kind, "early_warning_trainings.py", one.__name__) for one in made)
    for name, runs in (("studied", early_warning_trainings.THIRD), ("held out", early_warning_held_out.RUNS)):
        file = "early_warning_held_out.py" if name == "held out" else "early_warning_trainings.py"
        for kind, made in runs.items():
            yield from ((name, kind, file, one.__name__) for one in made)


def told_by_trainscope(losses: Sequence[float], folder: Path) -> int | None:
    file = folder / "trainscope/core/detectors/changepoint.py"
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("changepoint", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    detector = module.ChangePointDetector()
    for step, loss in enumerate(losses):
        score = detector.update(loss) if isfinite(loss) else 1.0
        if score is not None and score > 0:
            return step
    return None


def watched(file: str, name: str, seed: int) -> tuple[list[float], int | None]:
    """The losses, and the step of the announcement."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "tensonde",
            "run",
            "--quiet",
            "--no-experiments",
            "--record",
            "r",
            str(HERE / file),
            name,
            str(seed),
        ]
        subprocess.run(command, cwd=folder, capture_output=True, check=False)
        rank = Recording.open(Path(folder) / "r").ranks[0]
        told = [hit.moment.step for hit in rank.hits if hit.condition == RUNAWAY]
        return rank.scalars("loss")["value"].to_pylist(), min(told, default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trainscope", type=Path)
    chosen = parser.parse_args()
    leads: dict[tuple[str, str], list[int | None]] = {}
    alarms: dict[tuple[str, str], list[bool]] = {}
    for name, kind, file, run in trainings():
        if not fnmatch.fnmatch(run, chosen.only):
            continue
        losses, ours = watched(file, run, chosen.seed)
        told = {"tensonde": ours}
        if chosen.trainscope is not None:
            told["trainscope"] = told_by_trainscope(losses, chosen.trainscope)
        left = left_range(losses)
        for who, step in told.items():
            if kind == "healthy":
                alarms.setdefault((name, who), []).append(step is not None)
            elif left is not None:
                leads.setdefault((name, who), []).append(None if step is None else left.step - step)
        words = "  ".join(f"{who} {_verdict(step, left.step if left else None)}" for who, step in told.items())
        print(f"{name:<9}{kind:<9} {run:<24} shown at {left.step if left else None!s:<5} {words}", flush=True)
    for name, who in leads | alarms:
        ahead = [lead for lead in leads.get((name, who), []) if lead is not None and lead > 0]
        print(
            f"{name}, {who}: announced before the loss showed it {len(ahead)} of {len(leads.get((name, who), []))}"
            f"{f' (median lead {median(ahead):g})' if ahead else ''}, false alarms {sum(alarms.get((name, who), []))} of {len(alarms.get((name, who), []))}"
        )


def _verdict(told: int | None, shown: int | None) -> str:
    if told is None:
        return "silent"
    return f"at {told}" if shown is None else f"at {told} (lead {shown - told})"


if __name__ == "__main__":
    main()
