"""What was recorded so far, at the terminal: findings, the ops around a node, search, and tensors of other steps and runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tensonde.debugger.address import Reference
from tensonde.debugger.context import Context
from tensonde.debugger.control import nothing
from tensonde.debugger.numbers import kind_of, short
from tensonde.debugger.table import Command
from tensonde.debugger.terminal import Piece
from tensonde.digest.reference import digest_array
from tensonde.errors import RecordingError, UsageError
from tensonde.model.trace import OpRecord, TensorFact, Trace
from tensonde.session.inspector import Value
from tensonde.store.dump.layout import is_dump
from tensonde.store.reader import Rank, Recording
from tensonde.store.resolve import resolve
from tensonde.store.sources import Entry, TensorSource, open_source

MOST = 60
LARGEST = 1 << 22
"""Elements of a tensor that is looked at for a table."""
_FIELDS = ("min", "mean", "max", "absmax")
_COUNTED = ("nan", "pos_inf", "neg_inf")


def _rank(context: Context) -> Rank:
    """The recording of this process, with everything that was observed until now."""
    context.session.flush()
    return Rank(context.session.writer.folder)


# -- findings ------------------------------------------------------------------------------------


def findings(context: Context, argument: str) -> None:
    nothing(argument, "findings")
    from tensonde.diagnose.diagnose import diagnose

    rank = _rank(context)
    found = diagnose(Recording(rank.folder.parent, {}, [rank]))
    if not found:
        context.terminal.text("the diagnosis finds nothing wrong in what was recorded so far")
    for k, finding in enumerate(found):
        mark = {"error": "bad", "warning": "code"}.get(str(finding.severity), "dim")
        context.terminal.line((f"{k + 1}. {finding.title}", mark), (f"  {finding.rule}", "dim"))
        place = ", ".join(
            str(part) for part in (finding.site, finding.step is not None and f"step {finding.step}", finding.source) if part
        )  # fmt: skip
        if place:
            context.terminal.line("   ", (place, "site"))
        if finding.advice:
            context.terminal.text(f"   {finding.advice}")


# -- nodes ---------------------------------------------------------------------------------------


def _traces(context: Context) -> list[Trace]:
    """The latest first."""
    return sorted(_rank(context).traces, key=lambda trace: -trace.step)


def node(context: Context, argument: str) -> None:
    name = (argument or (context.stop.site.address if context.stop.site is not None else "")).partition(":")[0]
    if not name:
        raise UsageError("node which? For example `node blocks.0.attn/softmax#0`; `find softmax` looks for one.")
    for trace in _traces(context):
        ops = [op for op in trace.ops if op.site == name] or _within(trace, name)
        if ops:
            _show_ops(context, trace, ops, name)
            return
    if not _show_model(context, name):
        raise UsageError(f"there is no node {name!r} so far; `find` looks for names.")


def _show_model(context: Context, name: str) -> bool:
    """A module or a parameter as it is now, and who takes it: of a module that no trace has, its parameters and what is inside it."""
    modules = {node.name: node for node in context.inspector.modules()}
    held = [a.removesuffix(":value") for a in context.inspector.addresses() if a.endswith(":value")]
    if name in modules:
        node, prefix = modules[name], "" if modules[name].is_root and f"{name}.weight" not in held else f"{name}."
        title, type = name, node.type
        own = [one for one in held if one.startswith(prefix) and "." not in one[len(prefix) :]]
        inside = [n for n in modules if n != name and n.startswith(prefix) and "." not in n[len(prefix) :]]
    elif name in held:
        title, type, own, inside = name, "parameter", [name], []
    else:
        return False
    context.terminal.line((title, "title"), f"  {type}", (f"  step {context.stop.moment.step}, as it is now", "dim"))
    rows: list[list[Piece]] = []
    for one in own:
        value = context.inspector.value(f"{one}:value")
        (row,) = digest_array(value.array)
        rows.append(
            ["is" if own == [name] else "has", (f"{one}:value", "site"), *_columns(value.dtype, value.shape, row)]
        )
    rows += [["holds", (one, "site"), modules[one].type] for one in inside]
    traces = _traces(context)
    for trace in traces[:1]:
        rows += [
            ["goes to", (op.site, "site"), *(_facts(op.outputs[0]) if op.outputs else ())]
            for op in trace.ops if any(tensor.name == name for tensor in op.inputs)
        ]  # fmt: skip
    context.terminal.table(rows[:MOST], titles=("", "", "", *_FIELDS, "nan/inf") if own else ())
    if not traces:
        context.terminal.text("  what it takes and gives is known when the first step is over")
    return True


def _within(trace: Trace, module: str) -> list[OpRecord]:
    """What ran while it was called, in modules inside of it as well."""
    spans = [(call.first, call.last) for call in trace.calls if call.module == module]
    return [op for op in trace.ops if op.module == module or any(first <= op.index < last for first, last in spans)]


def _show_ops(context: Context, trace: Trace, ops: list[OpRecord], name: str) -> None:
    by_index = {op.index: op for op in trace.ops}
    first, last = ops[0], ops[-1]
    inside = {op.index for op in ops}
    title = first.site if len(ops) == 1 else f"{name}, {len(ops)} ops"
    type = next((call.type for call in trace.calls if call.module == name), first.module_type)
    context.terminal.line((title, "title"), f"  {first.op if len(ops) == 1 else type}")
    if first.source is not None:
        context.terminal.line(("  " + str(first.source), "dim"), "  ", (first.source.code, "code"))
    rows: list[list[Piece]] = []
    for op in ops:
        for tensor in op.inputs:
            if tensor.producer in inside:
                continue
            maker = by_index.get(tensor.producer) if tensor.producer is not None else None
            origin = (
                _out(maker, tensor) if maker is not None else f"{tensor.name}:value" if tensor.name else "from outside"
            )
            rows.append(["takes", (origin, "site"), *_here(context, trace, origin, tensor)])
    for tensor in last.outputs:
        address = _out(last, tensor)
        rows.append(["gives", (address, "site"), *_here(context, trace, address, tensor)])
    for user in trace.ops:
        if user.index not in inside and any(tensor.producer in inside for tensor in user.inputs):
            numbers = _here(context, trace, _out(user, user.outputs[0]), user.outputs[0]) if user.outputs else ()
            rows.append(["goes to", (user.site, "site"), *numbers])
    context.terminal.table(rows[:MOST], titles=("", "", "", *_FIELDS, "nan/inf", "step"))


def _out(op: OpRecord, tensor: TensorFact) -> str:
    """The address of what an op gives."""
    place = next((k for k, one in enumerate(op.outputs) if one.id == tensor.id), 0)
    return f"{op.site}:out[{place}]" if len(op.outputs) > 1 else f"{op.site}:out"


def _here(context: Context, trace: Trace, address: str, tensor: TensorFact) -> Iterator[Piece]:
    """The tensor as it is at this stop, where it ran already in this step and is not huge; else as the trace saw it. With the step."""
    with suppress(UsageError):
        shape, _ = context.inspector.shape(address)
        if np.prod(shape, dtype=np.int64) <= LARGEST:
            value = context.inspector.value(address)
            if not value.note and value.step in (None, context.stop.moment.step):
                yield from _columns(value.dtype, value.shape, digest_array(value.array)[0])
                yield (f"{context.stop.moment.step}, now", "dim")
                return
    yield from _facts(tensor)
    if tensor.stats:
        yield (str(trace.step), "dim")


def _facts(tensor: TensorFact) -> Iterator[Piece]:
    if tensor.stats:
        yield from _columns(
            tensor.dtype, tensor.shape, {name: tensor.stats.get(name, 0) for name in _COUNTED} | dict(tensor.stats)
        )
    else:
        yield kind_of(tensor.dtype, tensor.shape)


def _columns(dtype: str, shape: Sequence[int], stats: Any) -> Iterator[Piece]:
    yield kind_of(dtype, tuple(shape))
    yield from (short(float(stats[name])) for name in _FIELDS)
    bad = int(sum(stats[name] for name in _COUNTED))
    yield (str(bad), "bad" if bad else "dim")


# -- search --------------------------------------------------------------------------------------


def find(context: Context, argument: str) -> None:
    words = argument.lower().split()
    if not words:
        raise UsageError("find what? Words of a name, `kind:Conv2d`, or `src:model.py:16`.")
    found = [row for row in _known(context) if all(_fits(row, word) for word in words)]
    if not found:
        early = "" if context.session.sites else "; source lines are known when the first step is over"
        raise UsageError(
            f"nothing fits {argument!r}: every word must be in the name, the kind or the source line{early}."
        )
    context.terminal.table([[(name, "site"), kind, (source, "dim")] for name, kind, source in found[:MOST]])
    if len(found) > MOST:
        context.terminal.text(f"… and {len(found) - MOST} more; another word narrows it")


Named = tuple[str, str, str]
"""Name, kind, source line."""


def _known(context: Context) -> list[Named]:
    """Modules first, then parameters, then ops; before the first step as well."""
    modules = [(node.name, node.type, "") for node in context.inspector.modules()]
    made = {site.name: str(site.source or "") for site in context.session.sites if site.source is not None}
    parameters = [
        (a.removesuffix(":value"), "parameter", "") for a in context.inspector.addresses() if a.endswith(":value")
    ]
    ops: dict[str, Named] = {}
    for trace in _traces(context):
        for op in trace.ops:
            ops.setdefault(op.site, (op.site, op.op, str(op.source or "")))
    return [*((name, kind, made.get(name, source)) for name, kind, source in modules), *parameters, *ops.values()]


def _fits(row: Named, word: str) -> bool:
    name, kind, source = (part.lower() for part in row)
    field, colon, text = word.partition(":")
    if colon and field == "kind":
        return kind == text
    if colon and field in ("src", "source"):
        return source.endswith(text) if text.rpartition(":")[2].isdecimal() else text in source
    return word in name or word == kind or (bool(source) and source.endswith(word))


# -- tensors of other steps and runs ---------------------------------------------------------------


def is_elsewhere(word: str) -> bool:
    return word.startswith(("step:", "run:"))


def elsewhere(context: Context, given: Reference, word: str) -> tuple[Value, str]:
    """`step:N` of this run, or `run:NAME` and `run:NAME:STEP`: the tensor as it was kept there, and what to call it."""
    kind, _, rest = word.partition(":")
    run, step = context.session.writer.folder.parent, rest
    if kind == "run":
        name, colon, last = rest.rpartition(":")
        name, step = (name, last) if colon and last.isdecimal() else (rest, "")
        try:
            run = resolve(Path(name))[0]
        except RecordingError as problem:
            raise UsageError(str(problem)) from None
    elif not step.isdecimal():
        raise UsageError(f"{word!r} is no step; write `step:12`.")
    else:
        context.session.flush()
        for before in (False, True):  # the two steps that a debugger has at hand
            with suppress(UsageError):
                value = context.inspector.value(given.address, before=before, index=given.index)
                if value.step == int(step):
                    return value, f"step {step}"
    kept = [
        (source, entry)
        for source in _sources(run, context.session.rank)
        for entry in source.entries
        if entry.site == given.address
    ]
    chosen = [pair for pair in kept if not step or pair[1].step == int(step)]
    if not chosen:
        steps = sorted({entry.step for _, entry in kept})
        there = f"it was at {', '.join(map(str, steps[:10]))}" if steps else "no step of it was; `--dump` keeps tensors"
        raise UsageError(f"{given.address} was not kept {f'at step {step}' if step else f'in {run}'}: {there}.")
    source, entry = chosen[-1]
    return _value(source, entry, given), f"step {entry.step}" + (f" of {run.name}" if kind == "run" else "")


def _sources(run: Path, rank: int) -> Iterator[TensorSource]:
    """What the run keeps of one rank: its dump, and the tensors of hits."""
    for folder in (run, run / "dump"):
        if folder == run or is_dump(folder):
            try:
                yield open_source(folder, rank)
            except RecordingError:  # nothing was kept there
                continue


def _value(source: TensorSource, entry: Entry, given: Reference) -> Value:
    try:
        array: np.ndarray[Any, Any] = np.array(source.read(entry)[given.index] if given.index else source.read(entry))
    except (RecordingError, IndexError) as problem:
        raise UsageError(str(problem)) from None
    return Value(entry.site, array, entry.dtype, tuple(array.shape), step=entry.step)


COMMANDS = (
    Command(
        name="findings", run=findings,
        summary="what the diagnosis says about everything recorded so far",
    ),
    Command(
        name="node", usage="[NODE]", run=node, completes="sites", aliases=("neighbours", "neighbors"),
        summary="the inputs and outputs of an op or module and what uses them, with the numbers of this stop, or else of the traced step",
        detail="For a parameter, and for a module before the first step: its current values, and what it holds.",
        example="node blocks.0.attn/softmax#0",
    ),
    Command(
        name="find", usage="WORD...", run=find, aliases=("search",),
        summary="modules, parameters and ops by name, kind or source line, even before the first step",
        detail="Every word must match. `kind:Conv2d` is a class of modules or an op, `src:model.py:16` a source line.",
        example="find kind:Linear blocks.0",
    ),
)  # fmt: skip
