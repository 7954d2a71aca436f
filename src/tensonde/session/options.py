"""What the user asked for, as a frozen value that travels to child processes in one environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tensonde.errors import UsageError
from tensonde.model.watchpoint import Action

ENVIRONMENT = "TENSONDE_OPTIONS"
SECONDS = 2.0
"""Of processor time, for the experiments of a short run."""

GraphMode = Literal["auto", "exact", "nodes", "full"]


WEIGHTS, BATCHES = "weights", "batches"
"""Folders of what one of two runs keeps for the other."""


@dataclass(frozen=True, slots=True)
class Twin:
    """One of two runs that are compared. Empty where the run is left as it is.

    `keep`: the folder that initial weights and batches are kept in. `weights` and `batches`: whether to begin with those
    that the other run kept in `take`. `renamed`: its names for this run's parameters, `transposed`: those that it keeps the
    other way round. `seeded`: dropout and the like draw the same numbers in both runs, whatever was drawn before; `across`: also
    where the other run is of another framework.
    """

    keep: str = ""
    take: str = ""
    weights: bool = False
    batches: bool = False
    seeded: bool = False
    across: bool = False
    renamed: dict[str, str] = field(default_factory=dict)
    transposed: tuple[str, ...] = ()

    @property
    def faint(self) -> float:
        """Gradients of a smaller share of the typical one tell nothing of the optimizer: rounding, and across frameworks the place where
        an adaptive optimizer adds its epsilon."""
        return 0.1 if self.across else 1e-3


@dataclass(frozen=True, slots=True)
class Options:
    """`budget` is the share of step time that Tensonde may take; None digests everything at every step, 0 leaves only the sentinel."""

    run: str
    watches: tuple[tuple[str, str, Action], ...] = field(default_factory=tuple)
    on_hit: Action = "report"
    budget: float | None = 0.05
    steps: int | None = None
    recommended: bool = True
    debug: bool = False
    quiet: bool = False
    bundle_bytes: int = 1 << 30
    """The largest bundle that a step is saved to when it is replayed; 0: none."""
    table_bytes: int = 512 << 20
    """What the digests and scalars of a process may take on disk; older steps are thinned to keep to it. 0: no limit."""
    save_steps: tuple[int, ...] = ()
    """Steps to be saved in any case."""
    replay: str | None = None
    """The bundle that this process is to run again, instead of training."""
    factory: str | None = None
    """What builds the model for that, `package.module:function`; else the script does."""
    prepare: str | None = None
    """A function, `package.module:function`, that is called once the framework is imported, before anything trains."""
    graph: GraphMode = "auto"
    """What compiled graphs digest by themselves: what is watched by name (auto), nothing (exact), every node (nodes, full)."""
    verify_steps: tuple[tuple[int, int], ...] | None = None
    """Steps (first and last; () is every step) in which every call of a compiled graph is compared with the graph uncompiled; None: only
    the first call of each graph is."""
    window: tuple[int, int] = (0, 1)
    """Steps that are traced op by op: from the first of these to before the second."""
    twin: Twin | None = None
    """How this run is tied to another one that it is compared with."""
    dump: dict[str, Any] | None = None
    """The settings of a dump, as `DumpSettings.to_json` gives them."""
    experiments: float = 0.0
    """Seconds of processor time that experiments may take in a short run; more in a longer one (docs/experiments.md). 0: there are none."""
    experiments_by_default: bool = False
    """Nobody has asked for experiments: they are on where the adapter has them on by default."""
    memory: bool = False
    """What the first steps take of memory is noted, tensor by tensor, and little else."""
    hub: str = ""
    """The URL of a hub, with its token."""
    supervised: bool = False
    """The command that started this process makes Parquet of the recording when it has ended."""

    def to_environment(self) -> dict[str, str]:
        return {ENVIRONMENT: json.dumps(asdict(self))}

    @staticmethod
    def from_environment() -> Options | None:
        text = os.environ.get(ENVIRONMENT)
        if not text:
            return None
        try:
            fields = json.loads(text)
            fields["watches"] = tuple(tuple(entry) for entry in fields["watches"])
            fields["window"] = tuple(fields.get("window", (0, 1)))
            if fields.get("verify_steps") is not None:
                fields["verify_steps"] = tuple((int(first), int(last)) for first, last in fields["verify_steps"])
            fields["twin"] = Twin(**fields["twin"]) if fields.get("twin") else None
            fields["save_steps"] = tuple(fields.get("save_steps", ()))
            return Options(**fields)
        except (ValueError, KeyError, TypeError) as problem:
            raise UsageError(
                f"{ENVIRONMENT} holds {text[:80]!r}, which is not what `tensonde run` writes ({problem}); unset it."
            ) from None


def parse_budget(text: str) -> float | None:
    """`5%`, `0.05`, or `off` (everything at every step)."""
    lowered = text.strip().lower()
    if lowered == "off":
        return None
    try:
        share = float(lowered[:-1]) / 100 if lowered.endswith("%") else float(lowered)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 10:
        raise UsageError(
            f"the budget {text!r} is not a share of the step time; give e.g. 5%, 0 (sentinel only) or off."
        )
    return share


_UNITS = {"": 1, "B": 1, "K": 1 << 10, "KB": 1 << 10, "M": 1 << 20, "MB": 1 << 20, "G": 1 << 30, "GB": 1 << 30}


def parse_size(text: str) -> int:
    """`500MB`, `2GB`, a number of bytes, or `off` (0)."""
    upper = text.strip().upper()
    number = upper.rstrip("KMGB")
    unit = upper[len(number) :].strip()
    try:
        size = 0.0 if upper == "OFF" else float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        size = -1.0
    if not 0 <= size < 1 << 62:
        raise UsageError(f"{text!r} is not a size; give e.g. 500MB, 2GB or off.")
    return int(size)
