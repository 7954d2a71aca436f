"""`tensonde.inspect`, whatever the framework: which gradients are asked for, and what it gives back: one call, op by op, to look at,
filter, plot and save."""

from __future__ import annotations

import inspect as python
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite, log10
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensonde.digest.layout import COUNTS, DTYPES, ROW, STATS
from tensonde.errors import UsageError
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Role, Site
from tensonde.model.trace import OpRecord, TensorFact, Trace
from tensonde.store.claim import claim_rank, create_run
from tensonde.store.writer import RecordingWriter
from tensonde.watch.pattern import Pattern
from tensonde.watch.suggest import nearest

KEPT_BYTES = 256 << 20
"""Values of one call that are kept."""
PARTLY = "only a part of the values was kept; all digests are there"

Tensor: TypeAlias = Any
"""A framework's own."""
Values = Mapping[tuple[int, Role, int], Tensor]
"""By op, role (out or grad) and position."""
Wrt: TypeAlias = "str | int | Tensor | Iterable[str | int | Tensor] | None"


@dataclass(frozen=True, slots=True)
class Reading:
    """How tensors of a framework are read."""

    framework: str
    raw: Callable[[Tensor], tuple[bytes, str, tuple[int, ...]]]
    """Bytes, dtype and shape, for the recording."""
    array: Callable[[Tensor], NDArray[Any]]


# -- what is asked for -----------------------------------------------------------------------------


def callable_or_refuse(fn: Any) -> None:
    if not callable(fn):
        raise UsageError(f"tensonde.inspect wants something to call, an op, a function or a module, and got {fn!r}.")


def names_of(call: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """What the inputs of the call are named, in order."""
    try:
        known = [
            name
            for name, parameter in python.signature(call).parameters.items()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):  # built-in functions
        known = []
    return [known[k] if k < len(known) else f"input {k}" for k in range(len(args))] + list(kwargs)


def positions_of(wrt: Wrt, names: list[str], given: list[Any], tensor: type) -> list[int]:
    """Of the inputs with respect to which gradients are asked for, without repeats."""
    chosen: list[Any] = [wrt] if isinstance(wrt, str | int | tensor) else list(wrt or ())
    found: dict[int, None] = {}
    for one in chosen:
        found |= dict.fromkeys(_positions(one, names, given, tensor))
    return list(found)


def _positions(one: Any, names: list[str], given: list[Any], tensor: type) -> list[int]:
    tensors = [k for k, value in enumerate(given) if isinstance(value, tensor)]
    if isinstance(one, str) and one == "all":
        return tensors
    if isinstance(one, str) and one in names and isinstance(given[names.index(one)], tensor):
        return [names.index(one)]
    if isinstance(one, int) and one in tensors:
        return [one]
    if isinstance(one, tensor):
        for k in tensors:
            if given[k] is one:
                return [k]
    told = ", ".join(names[k] for k in tensors) or "none"
    shown = "a tensor that is none of the inputs" if isinstance(one, tensor) else repr(one)
    raise UsageError(f"wrt is {shown}; it may be 'all', or name tensors among the inputs ({told}) or their positions.")


def no_gradient(name: str, dtype: object, cast: str) -> UsageError:
    return UsageError(
        f"the input {name} is of {dtype}, and only floating-point tensors have gradients; give it as {cast}."
    )


# -- what comes back -------------------------------------------------------------------------------


class Inspection:
    """One call. A sequence of ops (`model/trace.py`), in execution order.

    `result` is what the call gave; `gradients` those that were asked for, by the name of the input or parameter.
    """

    def __init__(
        self, trace: Trace, values: Values, result: Any, gradients: Mapping[str, Tensor | None], reading: Reading
    ) -> None:
        self.trace = trace
        self.result = result
        self.gradients = dict(gradients)
        self._values = values
        self._reading = reading

    def __len__(self) -> int:
        return len(self.trace.ops)

    def __iter__(self) -> Iterator[OpRecord]:
        return iter(self.trace.ops)

    def __getitem__(self, which: int | str) -> OpRecord:
        """By position, or by site (`/softmax#0`, `softmax#0`)."""
        if isinstance(which, int):
            return self.trace.ops[which]
        for op in self.trace.ops:
            if op.site in (which, f"/{which}"):
                return op
        close = nearest(which, [op.site for op in self.trace.ops])
        hint = f"; the nearest are {', '.join(close)}" if close else ""
        raise UsageError(f"no op of this call is at {which!r}{hint}.")

    # -- values ----------------------------------------------------------------------------------

    def value(self, which: int | str, output: int = 0) -> Tensor:
        """What an op gave, as it was then."""
        return self._tensor(which, Role.OUT, output)

    def gradient(self, which: int | str, output: int = 0) -> Tensor:
        """The gradient of what an op gave."""
        return self._tensor(which, Role.GRAD, output)

    def _tensor(self, which: int | str, role: Role, output: int) -> Tensor:
        op = self[which]
        found = self._values.get((op.index, role, output))
        if found is None:
            what = "gradient" if role is Role.GRAD else "value"
            raise UsageError(
                f"no {what} of {op.site} is at hand: it gave {len(op.outputs)} tensors, and large calls keep only some."
            )
        return found

    def filter(
        self, sites: str | None = None, *, op: str | None = None, where: Callable[[OpRecord], bool] | None = None
    ) -> Inspection:
        """The ops whose site matches the pattern, of this kind, and for which `where` holds."""
        pattern = Pattern.parse(sites) if sites else None
        kept = [
            record
            for record in self.trace.ops
            if (pattern is None or pattern.matches(_site(record, 0, Role.OUT, 0)))
            and (op is None or record.op == op)
            and (where is None or where(record))
        ]
        return Inspection(
            replace(self.trace, ops=tuple(kept)), self._values, self.result, self.gradients, self._reading
        )

    # -- looking ---------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """One plain mapping an op, e.g. for pandas."""
        return [
            {
                "op": op.site,
                "phase": str(op.phase),
                "inputs": [_short(fact) for fact in op.inputs],
                "outputs": [_short(fact) for fact in op.outputs],
                **{name: _stat(op, name) for name in ("min", "max", "mean", "std", "absmax", "norm", "nan")},
                "inf": _stat(op, "pos_inf") + _stat(op, "neg_inf"),
                "grad_norm": op.gradient.get("norm", float("nan")),
                "source": str(op.source) if op.source else "",
                "code": op.source.code if op.source else "",
            }
            for op in self.trace.ops
        ]

    def __str__(self) -> str:
        columns = (
            "op",
            "phase",
            "inputs",
            "outputs",
            "min",
            "max",
            "mean",
            "nan",
            "inf",
            "grad_norm",
            "source",
            "code",
        )
        body = [[_cell(row[name]) for name in columns] for row in self.rows()]
        lines = [list(columns), *body]
        widths = [min(48, max(len(line[k]) for line in lines)) for k in range(len(columns))]
        text = [
            "  ".join(_cut(cell, width).ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        text += [f"gradient of {name}: {self._told(gradient)}" for name, gradient in self.gradients.items()]
        text += [f"note: {note}" for note in self.trace.notes]
        return "\n".join(text)

    def _told(self, gradient: Tensor | None) -> str:
        if gradient is None:
            return "none: the result does not depend on it"
        array = self._reading.array(gradient)
        if array.size == 1:
            return f"{array.item():.6g}"
        shape = str(list(array.shape)).replace(" ", "")
        return f"{shape} norm {float(np.linalg.norm(array.reshape(-1))):.4g}"

    def __repr__(self) -> str:
        return (
            f"<Inspection of {len(self)} ops; print it, or look at .value('{self.trace.ops[0].site}')>"
            if len(self)
            else "<Inspection of no ops>"
        )

    def print(self) -> None:
        """The table, on standard output."""
        sys.stdout.write(f"{self}\n")

    def plot(self, field: str = "absmax", width: int = 50) -> str:
        """A bar an op, of the logarithm of a digest field; printed and returned."""
        if field not in STATS:
            raise UsageError(f"there is no field {field!r} to plot; choose one of {', '.join(STATS)}.")
        numbers = [abs(_stat(op, field)) for op in self.trace.ops]
        logs = [log10(number) for number in numbers if isfinite(number) and number > 0]
        low, high = (min(logs), max(logs)) if logs else (0.0, 0.0)
        name = max((len(op.site) for op in self.trace.ops), default=0)
        lines = []
        for op, number in zip(self.trace.ops, numbers, strict=True):
            share = (log10(number) - low) / (high - low or 1) if isfinite(number) and number > 0 else 0.0
            bar = "█" * (1 + round(share * (width - 1))) if isfinite(number) and number > 0 else ""
            lines.append(f"{op.site.ljust(name)}  {bar} {number:.4g}".rstrip())
        text = "\n".join([f"{field}, logarithmic", *lines])
        sys.stdout.write(f"{text}\n")
        return text

    # -- saving ----------------------------------------------------------------------------------

    def save(self, folder: str | Path | None = None) -> Path:
        """Makes a recording of it (default: a new one under .tensonde/runs), which `tensonde show` opens. Returns its folder."""
        target = Path(folder) if folder is not None else None
        manifest = {"script": "inspect", "argv": sys.argv}
        if target is None:
            run = create_run(Path(".tensonde") / "runs", None, manifest)
        else:
            run = create_run(target.parent, target.name, manifest)
        writer = RecordingWriter(claim_rank(run, 0), {"rank": 0, "world_size": 1, "framework": self._reading.framework})
        rows = []
        number = 0
        for op in self.trace.ops:
            for role, facts in ((Role.OUT, op.outputs), (Role.GRAD, op.outputs[:1])):
                for k, fact in enumerate(facts):
                    stats = fact.stats if role is Role.OUT else op.gradient
                    if "count" not in stats:
                        continue
                    site = _site(op, number, role, k)
                    writer.site(site)
                    rows.append(_row(number, op, fact, stats, role))
                    value = self._values.get((op.index, role, k))
                    if value is not None:
                        phase = Phase.FORWARD if role is Role.OUT else Phase.BACKWARD
                        writer.value(site.address, Moment(0, phase), *self._reading.raw(value))
                    number += 1
        if rows:
            writer.digests(np.concatenate(rows))
        writer.trace(self.trace)
        writer.close({"exit": {"exception": None}, "steps": 1, "ended": None, "hits": 0})
        return run


def _site(op: OpRecord, number: int, role: Role, k: int) -> Site:
    several = len(op.outputs) > 1
    if op.phase is Phase.BACKWARD:
        role = Role.GRAD_IN
    fact = op.outputs[k] if k < len(op.outputs) else TensorFact(0, (), "")
    return Site(number, op.site, role, Kind.OP, k if several else None, op.op, None, fact.shape, fact.dtype, op.source)


def _row(number: int, op: OpRecord, fact: TensorFact, stats: Mapping[str, float], role: Role) -> np.ndarray[Any, Any]:
    row: np.ndarray[Any, Any] = np.zeros(1, ROW)
    row["site"] = number
    row["phase"] = int(Phase.BACKWARD if role is Role.GRAD else op.phase)
    row["dtype"] = DTYPES.index(fact.dtype) if fact.dtype in DTYPES else 0
    for name in COUNTS + STATS:
        row[name] = stats[name]
    return row


def _short(fact: TensorFact) -> str:
    return (fact.name or fact.dtype) + str(list(fact.shape)).replace(" ", "")


def _stat(op: OpRecord, name: str) -> float:
    return op.outputs[0].stats.get(name, float("nan")) if op.outputs else float("nan")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.4g}"
    return ", ".join(value) if isinstance(value, list) else str(value)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
