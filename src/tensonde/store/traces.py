"""Traces in a recording: one JSON file each, `traces/000000.json`, or `.json.gz` where it is large."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from tensonde.model.trace import CallRecord, OpRecord, TensorFact, Trace, WeightRecord
from tensonde.store.damage import read_file
from tensonde.store.files import dump_json, numbered, plain, write_numbered

FOLDER = "traces"


def write_trace(folder: Path, trace: Trace) -> Path:
    """Writes the trace beside the others. Raises OSError."""
    parent = folder / FOLDER
    return write_numbered(parent, len(numbered(parent)), _encoded(trace))


def _encoded(trace: Trace) -> bytes:
    """JSON as `dump_json` writes it, in a fraction of the time: a trace has a million numbers where modules are many."""
    import msgspec

    encoder = msgspec.json.Encoder(enc_hook=plain)
    finite: dict[int, bool] = {}  # by the id of a mapping: facts about one tensor share theirs

    def fit(stats: Mapping[str, float]) -> bool:
        known = finite.get(id(stats))
        if known is None:
            known = finite[id(stats)] = isfinite(sum(stats.values()))
        return known

    def encoded(record: OpRecord | CallRecord | WeightRecord) -> bytes:
        try:
            if _plain_arguments(record) and all(map(fit, _numbers(record))):
                return encoder.encode(record)
        except Exception:  # a number or a text that the encoder does not know
            pass
        return dump_json(record)

    parts = {name: b"[%s]" % b",".join(map(encoded, getattr(trace, name))) for name in ("ops", "calls", "weights")}
    rest = {name: getattr(trace, name) for name in trace.__dataclass_fields__ if name not in parts}
    members = [*((name, dump_json(value)) for name, value in rest.items()), *parts.items()]
    return b"{%s}\n" % b",".join(b'"%s":%s' % (name.encode(), value) for name, value in members)


def _numbers(record: OpRecord | CallRecord | WeightRecord) -> Iterator[Mapping[str, float]]:
    """Every mapping to numbers in a record, of which NaN and infinities are written as text."""
    if isinstance(record, WeightRecord):
        yield from (record.before, record.raw, record.gradient, record.after, record.moved, record.own)
        return
    for fact in (*record.inputs, *record.outputs):
        yield fact.stats
    if isinstance(record, CallRecord):
        for fact in record.state:
            yield fact.stats
    else:
        yield record.gradient


def _plain_arguments(record: OpRecord | CallRecord | WeightRecord) -> bool:
    return not isinstance(record, OpRecord) or all(map(_is_plain, record.arguments.values()))


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return all(map(_is_plain, value)) if isinstance(value, list | tuple) else isinstance(value, str | int | None)


def read_trace(path: Path) -> Trace:
    """Raises OSError, or ValueError where the file is damaged. Numbers that JSON cannot hold are text ("NaN") in the file."""
    import msgspec

    try:
        trace = msgspec.json.decode(read_file(path), type=Trace, strict=False)
    except RecursionError as problem:
        raise ValueError("it is nested too deeply") from problem
    tensors = (fact for op in trace.ops for fact in (*op.inputs, *op.outputs))
    if any(fact.producer is not None and not 0 <= fact.producer < len(trace.ops) for fact in tensors):
        raise ValueError("an op takes a tensor from an op that is not there")
    return _mended(trace)


def _mended(trace: Trace) -> Trace:
    """A trace that broke off in the middle of an op: its loss, and what calls took and gave, may come from the op that is missing."""
    count = len(trace.ops)

    def known(facts: tuple[TensorFact, ...]) -> tuple[TensorFact, ...]:
        return tuple(
            fact if fact.producer is None or 0 <= fact.producer < count else replace(fact, producer=None)
            for fact in facts
        )

    loss = trace.loss if trace.loss is not None and 0 <= trace.loss < count and trace.ops[trace.loss].outputs else None
    calls = tuple(replace(call, inputs=known(call.inputs), outputs=known(call.outputs)) for call in trace.calls)
    return replace(trace, loss=loss, calls=calls)
