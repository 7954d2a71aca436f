"""One traced step or call as a page: every op with what went in and came out, bad ones marked."""

from __future__ import annotations

from collections.abc import Mapping

from tensonde.model.trace import OpRecord, TensorFact, Trace
from tensonde.page.markup import mark, number, table, tag, text
from tensonde.page.page import document

OPS = 2000


def call_report(trace: Trace) -> str:
    rows = [_row(op) for op in trace.ops[:OPS]]
    bad = sum(1 for op in trace.ops if any(_bad(tensor.stats) for tensor in op.outputs))
    facts = f"{len(trace.ops)} ops, {bad} with NaN or Inf in what they put out"
    more = tag("p", f"Only the first {OPS} are shown.", class_="dim") if len(trace.ops) > OPS else ""
    notes = "".join(tag("p", text(note), class_="dim") for note in trace.notes)
    title = f"Step {trace.step} ({trace.reason})"
    head = ["", "Op", "Output", "Min", "Max", "Mean", "Std", "NaN, Inf", "Gradient", "Source"]
    body = (
        tag("h1", text(title))
        + tag("p", text(facts), class_="dim")
        + notes
        + tag("div", table(head, rows), class_="scroll")
        + more
    )
    return document(title, body)


def _row(op: OpRecord) -> list[str]:
    first = op.outputs[0] if op.outputs else TensorFact(-1, (), "")
    stats = first.stats
    strange = sum(stats.get(name, 0) for name in ("nan", "pos_inf", "neg_inf"))
    status = "bad" if any(_bad(tensor.stats) for tensor in op.outputs) or op.error else "ok" if stats else "none"
    shape = f"{first.dtype}[{', '.join(map(str, first.shape))}]" if op.outputs else ""
    numbers = [number(stats.get(name)) for name in ("min", "max", "mean", "std")]
    cells = [
        op.site,
        shape,
        *numbers,
        number(strange) if stats else "–",
        number(op.gradient.get("norm")),
        str(op.source or ""),
    ]
    return [mark(status), *(tag("code", text(cell)) for cell in cells)]


def _bad(stats: Mapping[str, float]) -> bool:
    return any(stats.get(name, 0) for name in ("nan", "pos_inf", "neg_inf"))
