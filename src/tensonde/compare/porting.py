"""A run and its port to another framework, as each begins: random draws always differ, anything else is a difference.

The two frameworks have other random numbers, so initial weights, the order of samples and dropout cannot be equal. Here it is
said where they are not even alike: another distribution, another range, another shape.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensonde.compare import data
from tensonde.compare.dialect import common
from tensonde.compare.forward import StepPair
from tensonde.compare.judge import initial_divergence, with_lines
from tensonde.compare.pairing import pair
from tensonde.compare.side import Side
from tensonde.compare.training import Part, initial, only_drawn
from tensonde.compare.verdict import Divergence

FEW = 16
"""So few elements tell nothing of the distribution that they were drawn from."""


def unlike(a: Side, b: Side, chosen: Mapping[str, str] | None) -> Divergence | None:
    """Data of another kind, else initial values of another distribution, in the first step."""
    a, b = common(a, b)
    if 0 not in a.traces or 0 not in b.traces:
        return None
    pairing = pair(a, b, chosen)
    step = StepPair(a.traces[0], b.traces[0], pairing)
    found = data.unlike(step)
    if found is not None:
        return found
    parts = [part for part in initial(step.a, step.b, pairing) if not _alike(part)]
    return with_lines(initial_divergence(parts, False), a, b) if parts else None


def _alike(part: Part) -> bool:
    """Every parameter of a port is another draw, so chance is given twice the room. The one bias of a layer with one output is a draw, too."""
    if part.a["count"] == part.b["count"] == 1 and part.name.endswith("bias"):
        return bool(part.a["zero"]) == bool(part.b["zero"])
    if part.a["count"] < FEW and part.a["std"] and part.b["std"]:
        return True
    return only_drawn(part, slack=2.0)
