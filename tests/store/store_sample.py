"""A small made-up training, for the tests: eight sites, twenty steps, and a NaN from step 12 on."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from tensonde.digest.layout import DTYPES, ROW
from tensonde.model.finding import Finding
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Role, Site, SourceLine
from tensonde.model.watchpoint import Hit
from tensonde.store.claim import claim_rank, create_run
from tensonde.store.writer import RecordingWriter

STEPS = 20
FACTS = {
    "world_size": 2, "framework": "torch", "framework_version": "2.13.0", "device": "cpu", "python": "3.11.7",
}  # fmt: skip
LINE = SourceLine("train.py", 31, "h = torch.relu(self.fc1(x))")
SITES = [
    Site(0, "fc1", Role.IN, Kind.MODULE, type="Linear", shape=(8, 4), dtype="float32"),
    Site(1, "fc1", Role.OUT, Kind.MODULE, type="Linear", shape=(8, 16), dtype="float32", source=LINE),
    Site(2, "fc2", Role.OUT, Kind.MODULE, index=0, type="Linear", shape=(8, 2), dtype="float32"),
    Site(3, "loss", Role.OUT, Kind.LOSS, dtype="float32"),
    Site(4, "fc1.weight", Role.GRAD, Kind.PARAMETER, type="Linear", trainable=True, shape=(16, 4)),
    Site(5, "fc1.weight", Role.VALUE, Kind.PARAMETER, type="Linear", trainable=True, shape=(16, 4)),
    Site(6, "fc2.weight", Role.GRAD, Kind.PARAMETER, type="Linear", trainable=True, shape=(2, 16)),
    Site(7, "fc2.weight", Role.VALUE, Kind.PARAMETER, type="Linear", trainable=True, shape=(2, 16)),
]


def rows(step: int, count: int = len(SITES), *, seed: int = 0) -> np.ndarray:
    """`count` digests of one step, in execution order."""
    random = np.random.default_rng([seed, step])
    out = np.zeros(count, ROW)
    out["step"], out["site"] = step, np.arange(count) % len(SITES)
    phases = {Role.GRAD: Phase.BACKWARD, Role.VALUE: Phase.OPTIMIZER}
    out["phase"] = [phases.get(SITES[site].role, Phase.FORWARD) for site in out["site"]]
    out["dtype"], out["count"] = DTYPES.index("float32"), 64
    for name in ("max", "std", "absmax", "absmean", "norm"):
        out[name] = random.random(count) + 1
    out["min"], out["zero"] = -out["absmax"], random.integers(0, 9, count)
    out["exponents"] = random.integers(0, 64, (count, 32))
    return out


def write_rank(run: Path, rank: int, *, steps: int = STEPS, nan_from: int = 12) -> RecordingWriter:
    """A rank's folder, written and not yet closed."""
    writer = RecordingWriter(claim_rank(run, rank), {"rank": rank, **FACTS}, segment_bytes=20_000)
    for site in SITES:
        writer.site(site)
    writer.event("started", note="a made-up training")
    for step in range(steps):
        batch = rows(step, seed=rank)
        if step >= nan_from:
            batch["nan"][2:] = 64
            for name in ("min", "max", "mean", "std", "absmax", "absmean"):
                batch[name][2:] = math.nan
            batch["norm"][2:] = 0
        loss = math.nan if step >= nan_from else 1 / (1 + step)
        writer.scalars(step, {"loss": loss, "lr/0": 0.1 * 0.9**step, "step_seconds": 0.01})
        writer.digests(batch)
    moment = Moment(nan_from, Phase.FORWARD)
    writer.hit(Hit(1, "fc2:out[0]", moment, "nan or inf", {}, {"nan": 64, "absmax": math.inf}, rank))
    writer.value("fc2:out[0]", moment, np.arange(16, dtype="<u2").tobytes(), "bfloat16", (8, 2))
    return writer


def write_run(parent: Path, name: str = "demo") -> Path:
    """Rank 0 closed, rank 1 as a kill leaves it."""
    run = create_run(parent, name, {"script": "train.py", "argv": ["--lr", "0.1"]})
    first = write_rank(run, 0)
    source = SourceLine("train.py", 44, "loss = (p * p.log()).sum()")
    first.findings(
        [
            Finding(
                "nan-origin", "error", "log of 0 gives NaN", "clamp p away from 0", step=12, phase="forward",
                site="fc2:out[0]", op="log", source=source, evidence={"nan": 64}, confidence=0.97,
            ),
            Finding("loss-nan", "error", "the loss is NaN", "see its cause", step=12, caused_by=0),
        ]
    )  # fmt: skip
    first.close(
        {
            "exit": {"code": 0, "exception": None},
            "steps": STEPS,
            "overhead": {"ratio": 1.03, "budget": 0.05},
            "coverage": {"sites": 8, "watched": 8},
        }
    )
    write_rank(run, 1, nan_from=STEPS)._compactor.finish([])
    return run
