"""What `tensonde.inspect` gives back: one call, op by op, to look at, filter, plot and save."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import isfinite, log10
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tensonde.adapters.torch.tensors import raw_bytes
from tensonde.digest.layout import COUNTS, DTYPES, ROW, STATS
from tensonde.errors import UsageError
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Role, Site
from tensonde.model.trace import OpRecord, TensorFact, Trace
from tensonde.store.claim import claim_rank, create_run
from tensonde.store.writer import RecordingWriter
from tensonde.watch.pattern import Pattern
from tensonde.watch.suggest import nearest

Values = Mapping[tuple[int, Role, int], Tensor]
"""By op, role (out or grad) and position."""


class Inspection:
    """One call. A sequence of ops (`model/trace.py`), in execution order.

    `result` is what the call gave; `gradients` those that were asked for, by the name of the input or parameter.
    """

    def __init__(self, trace: Trace, values: Values, result: Any, gradients: Mapping[str, Tensor | None]) -> None:
        self.trace = trace
        self.result = result
        self.gradients = dict(gradients)
        self._values = values

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
        return Inspection(replace(self.trace, ops=tuple(kept)), self._values, self.result, self.gradients)

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
        text += [f"gradient of {name}: {_grad(gradient)}" for name, gradient in self.gradients.items()]
        text += [f"note: {note}" for note in self.trace.notes]
        return "\n".join(text)

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
        writer = RecordingWriter(claim_rank(run, 0), {"rank": 0, "world_size": 1, "framework": "torch"})
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
                        writer.value(site.address, Moment(0, phase), *raw_bytes(value))
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


def _grad(gradient: Tensor | None) -> str:
    if gradient is None:
        return "none: the result does not depend on it"
    if gradient.numel() == 1:
        return f"{gradient.item():.6g}"
    shape = str(list(gradient.shape)).replace(" ", "")
    return f"{shape} norm {float(gradient.detach().float().norm()):.4g}"
