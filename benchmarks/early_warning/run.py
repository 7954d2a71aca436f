"""How early divergence is announced, and how often without reason: ten trainings that diverge, ten that do not (`trainings.py`).

    python benchmarks/early_warning/run.py [--seed 5] [--only 'rate_*'] [--trainscope FOLDER]

Each runs under `tensonde run --budget off` (steps this short are mostly left alone otherwise). The loss *shows* it at the first step where the median of
five losses is twice the lowest such median so far, and one and a half times all of the 50 before the last ten. The lead is counted from the warning to
that step. `--trainscope` is a folder with the package trainscope, whose own detector (its default, on the loss) is given the same losses.
"""

from __future__ import annotations

import argparse
import fnmatch
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from statistics import median

from trainings import DIVERGING, HEALTHY

from tensonde.store.reader import Recording

HERE = Path(__file__).resolve().parent


def shown(losses: Sequence[float]) -> int | None:
    """The step at which the loss shows that something is wrong."""
    plain = [value if isfinite(value) else 1e30 for value in losses]
    smooth = [median(plain[max(0, k - 4) : k + 1]) for k in range(len(plain))]
    for k in range(12, len(smooth)):
        if smooth[k] > 2 * min(smooth[5:k]) and smooth[k] > 1.5 * max(smooth[max(5, k - 60) : max(6, k - 10)]):
            return k - 2
    return None


def told_by_trainscope(losses: Sequence[float]) -> int | None:
    from trainscope.core.detectors import make_detector  # type: ignore[import-not-found]

    detector = make_detector({"name": "changepoint"})
    for step, loss in enumerate(losses):
        score = detector.update(loss) if isfinite(loss) else 1.0
        if score is not None and score > 0:
            return step
    return None


def trained(name: str, seed: int) -> tuple[list[float], int | None]:
    """The losses, and the step at which Tensonde said that updates go too far."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tensonde", "run", "--budget", "off", "--no-experiments", "--record", "r"]
        command += [str(HERE / "trainings.py"), name, str(seed)]
        subprocess.run(command, cwd=folder, capture_output=True, check=False)
        rank = Recording.open(Path(folder) / "r").ranks[0]
        losses = rank.scalars("loss")["value"].to_pylist()
        fact = rank.facts.get("overshoot")
        return losses, fact["step"] if fact else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--only", default="*")
    parser.add_argument("--trainscope", type=Path)
    chosen = parser.parse_args()
    if chosen.trainscope is not None:
        sys.path.insert(0, str(chosen.trainscope))
    for kind, runs in (("diverges", DIVERGING), ("healthy", HEALTHY)):
        for run in runs:
            if not fnmatch.fnmatch(run.__name__, chosen.only):
                continue
            losses, ours = trained(run.__name__, chosen.seed)
            told = {"tensonde": ours}
            if chosen.trainscope is not None:
                told["trainscope"] = told_by_trainscope(losses)
            at = shown(losses)
            words = [f"{who} {_verdict(step, at)}" for who, step in told.items()]
            print(f"{kind:<9} {run.__name__:<20} shown at {at!s:<5} {'   '.join(words)}", flush=True)


def _verdict(told: int | None, shown: int | None) -> str:
    if told is None:
        return "silent"
    return f"at {told}" if shown is None else f"at {told} (lead {shown - told})"


if __name__ == "__main__":
    main()
