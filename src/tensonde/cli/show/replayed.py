"""What a replay prints: whether it came out the same, its ops around the first bad one, and the findings."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, nan
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tensonde.cli.show.outcome import show_findings
from tensonde.diagnose.analysis.path import bad
from tensonde.model.finding import Finding
from tensonde.model.trace import OpRecord, Trace
from tensonde.store.reader import Recording

_AROUND = 6
"""Ops that are listed before and after the first bad one."""


def show_replay(
    console: Console,
    document: Mapping[str, Any],
    outcome: Mapping[str, Any],
    recording: Recording,
    findings: list[Finding],
    limit: int | None,
) -> None:
    console.print(_verdict(document, outcome))
    for line in _differences(document, outcome):
        console.print(f"    {line}", markup=False)
    traces = [trace for rank in recording.ranks for trace in rank.traces]
    if traces and limit != 0:
        console.print(_table(traces[0], outcome.get("failure"), limit))
    show_findings(console, findings)


def _verdict(document: Mapping[str, Any], outcome: Mapping[str, Any]) -> Text:
    text = Text(f"step {document['step']}: ")
    if outcome["exact"]:
        text.append("reproduced bit for bit", style="bold green")
    elif outcome["reproduced"]:
        text.append("reproduced, but not bit for bit", style="bold yellow")
    else:
        text.append("not reproduced", style="bold red")
    text.append(f": {outcome['ops']} ops, {outcome['compared']} results compared")
    return text


def _differences(document: Mapping[str, Any], outcome: Mapping[str, Any]) -> list[str]:
    if outcome["exact"]:
        return []
    lines = [outcome["error"]] if outcome["error"] else []
    different = outcome["different"]
    if different:
        first = different[0]
        what = f"the gradient of {first['gradient']}" if "gradient" in first else f"what {first['value']} gives"
        source = first.get("source")
        where = f" at {source['file']}:{source['line']}" if source else ""
        numbers = f" ({first['is']:.9g} instead of {first['was']:.9g})" if _known(first) else ""
        lines.append(f"{len(different)} of {outcome['compared']} results differ, first {what}{where}{numbers}")
    if outcome["settings"]:
        lines.append(f"not as in the training: {', '.join(outcome['settings'])}")
    if not document["exact"]:
        notes = "; ".join(map(str, document["notes"])) or "it came out otherwise"
        lines.append(f"in the training itself the step did not come out the same: {notes}")
    failure, expected = outcome.get("failure"), document["results"].get("failure")
    if expected and not failure:
        lines.append(f"everything is finite here; in the training, {expected['op']} was the first that was not")
    return lines


def _known(entry: Mapping[str, Any]) -> bool:
    return all(isinstance(entry.get(name), int | float) for name in ("is", "was"))


def _table(trace: Trace, failure: Mapping[str, Any] | None, limit: int | None) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name, justify in (
        ("#", "right"), ("op", "left"), ("out", "left"), ("min", "right"), ("max", "right"), ("nan", "right"),
        ("inf", "right"), ("grad", "right"), ("line", "left"),
    ):  # fmt: skip
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    first = next((op.index for op in trace.ops if failure and op.site == failure["site"]), None)
    if limit is None:
        centre = first if first is not None else max(0, len(trace.ops) - _AROUND)
        shown = trace.ops[max(0, centre - _AROUND) : centre + _AROUND + 1]
    else:
        shown = trace.ops[:limit]
    for op in shown:
        table.add_row(*_row(op), style="bold red" if op.index == first else "")
    return table


def _row(op: OpRecord) -> list[str]:
    stats = op.outputs[0].stats if op.outputs else {}
    shape = "×".join(map(str, op.outputs[0].shape)) if op.outputs else ""
    gradient = op.gradient.get("absmax")
    grad = "" if gradient is None else f"{gradient:.3g}"
    if bad(op.gradient) or "in.order" in op.gradient:
        grad = "not finite" if bad(op.gradient) else f"{grad} → not finite"
    return [
        str(op.index), op.site, shape, _number(stats, "min"), _number(stats, "max"), _count(stats, "nan"),
        _count(stats, "pos_inf", "neg_inf"), grad, str(op.source) if op.source else "",
    ]  # fmt: skip


def _number(stats: Mapping[str, float], name: str) -> str:
    return f"{stats[name]:.3g}" if isfinite(stats.get(name, nan)) else ""


def _count(stats: Mapping[str, float], *names: str) -> str:
    total = sum(stats.get(name, 0.0) for name in names)
    return f"{total:.0f}" if total else ""
