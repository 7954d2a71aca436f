"""Are outputs and targets of the same size?

What the model gives is held against the numbers that it is compared with. Healthy: after some steps, both are of about one size. Where targets are dozens of times larger than
outputs from the beginning to the end, a last layer that begins with outputs of about 1 does not get there: thousands, or years, were meant to be standardised.

The size of targets is that of their median: a mean that a few of them make large is not what most outputs should come to, and where most targets are 0, so may outputs be. Targets of about 1 are within
reach: outputs that stay small there say that little can be known.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.leak import CLASSES, compared, target_line
from tensonde.experiments.step import NotPossible, Step

FAR, LARGE = 30.0, 30.0
"""Times: what is another size; and what is beyond the reach of outputs of about 1."""


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    found = []
    for op, output, target in compared(step, anatomy):
        if op.name in CLASSES or step.values[target].kind != "float":
            continue
        given = float(np.sqrt(np.mean(np.square(step.array(output), dtype=np.float64))))
        wanted = float(np.median(np.abs(step.array(target))))
        if wanted > 0 and np.isfinite(given):
            found.append((wanted / max(given, 1e-12), given, wanted, target, op))
    if not found:
        raise NotPossible("nothing is compared with numbers")
    ratio, given, wanted, target, op = min(found, key=lambda told: told[0])
    numbers = {"outputs": given, "targets": wanted}
    if ratio < FAR or wanted < LARGE:
        yield Answer(True, f"outputs have the size {given:.3g}, targets {wanted:.3g}", numbers)
        return
    yield Answer(
        False,
        f"outputs have the size {given:.3g}, targets {wanted:.3g}",
        numbers,
        names=(step.values[target].name,),
        source=target_line(step, anatomy, target) or step.loss_source or op.source,
        op=op.name,
        part="targets",
    )


SIZES = Experiment("sizes", "Are outputs and targets of the same size?", ask, first=10, alone=False, always=True)
