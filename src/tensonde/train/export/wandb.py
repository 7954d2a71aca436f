"""A Weights & Biases run, offline: `wandb sync` sends it, if and when the user wants."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from tensonde.store.reader import Recording
from tensonde.train.export.series import points, texts
from tensonde.train.extras import need


def to_wandb(recording: Recording, folder: Path, *, sites: str, fields: Sequence[str]) -> int:
    """How many numbers were written. Each process of a run is a run of its own, in one group."""
    wandb = need("wandb", extra="wandb", what="the export to W&B")
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    for rank in recording.ranks:
        run = wandb.init(
            project="tensonde", name=f"{recording.name}-{rank.name}", group=recording.name, dir=str(folder), mode="offline",
            config={"script": recording.manifest.get("script"), **(rank.session.get("options") or {})},
            settings=wandb.Settings(silent=True, disable_git=True, console="off", x_disable_stats=True),
        )  # fmt: skip
        try:
            for step, group in groupby(points(recording, rank, sites, fields), key=lambda point: point.step):
                row = {point.name: point.value for point in group}
                run.log(row, step=step)
                written += len(row)
            for number, (_, text) in enumerate(texts(recording, rank)):
                run.summary[f"finding {number}"] = text
        finally:
            run.finish()
    return written
