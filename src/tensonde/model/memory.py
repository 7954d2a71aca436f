"""What memory is used for, and what a peak that is known for one batch says about another."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Literal, get_args

from tensonde.model.facts import MemoryFact

Use = Literal["parameters", "gradients", "optimizer", "buffers", "data", "activations", "workspace"]
USES: tuple[Use, ...] = get_args(Use)
NAMES: dict[Use, str] = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "state of optimizers",
    "buffers": "buffers",
    "data": "data",
    "activations": "activations",
    "workspace": "in between, in backward passes and optimizers",
}
Envelope = Sequence[Sequence[float]]
"""See `MemoryFact.envelope`."""
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def size(amount: float) -> str:
    """Bytes as people read them."""
    for unit, one in _UNITS:
        if amount >= one:
            return f"{amount / one:.1f} {unit}"
    return f"{round(amount)} bytes"


def peak_at(fact: MemoryFact, batch: int) -> int | None:
    """With batches of this many samples; None: not known."""
    return peak_of(fact.envelope, batch) if fact.envelope else None


def peak_of(envelope: Envelope, batch: int) -> int:
    return round(max(fixed + each * batch for fixed, each in envelope))


def fits(fact: MemoryFact, limit: int) -> int | None:
    """The largest batch whose peak stays within this many bytes; 0: not even one sample does, None: not known, or no batch is too large."""
    return largest(fact.envelope, limit)


def largest(envelope: Envelope, limit: int) -> int | None:
    growing = [(fixed, each) for fixed, each in envelope if each > 0]
    if not growing:
        return None
    if any(fixed > limit for fixed, each in envelope):
        return 0
    return max(0, min(floor((limit - fixed) / each) for fixed, each in growing))
