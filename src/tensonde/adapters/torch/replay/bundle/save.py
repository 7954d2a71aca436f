"""Saves the step that was just replayed, while everything that it began with is still as it was."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.replay.bundle.checksum import results
from tensonde.adapters.torch.replay.bundle.functions import name_of
from tensonde.adapters.torch.replay.bundle.program import program, settings
from tensonde.adapters.torch.replay.bundle.roots import describe
from tensonde.adapters.torch.replay.bundle.tensors import Gathered, Unsaveable
from tensonde.adapters.torch.replay.bundle.tree import Encoder, Path
from tensonde.adapters.torch.replay.call import Slot, TapedCall
from tensonde.adapters.torch.replay.execute import Outcome, Reenactment
from tensonde.adapters.torch.replay.memory import in_place
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.diagnose.analysis.path import backward_origin, forward_origin
from tensonde.model.trace import OpRecord, Trace
from tensonde.program.lines import to_json
from tensonde.version import __version__

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.state import RunState

LARGE = 1 << 20
"""Bytes of data from which on it matters whether all of it goes into the bundle."""
_SPARE = 2
"""A bundle may take at most this fraction (1/n) of the free disk."""


def save(
    run: RunState, act: Reenactment, outcome: Outcome, wanted: Slot | None, trace: Trace, trigger: str, batch: Any
) -> tuple[str, int]:
    """The bundle's place in the recording and its size. Raises Unsaveable, OSError."""
    session = run.session
    modules, state = _addresses(run)
    tensors = Gathered()
    encoder = Encoder(tensors, modules, state)
    with unseen():
        settled = _settled(act, outcome, state)
        encoder.settled = {slot: outcome.values[slot] for entry in settled for slot in entry.outputs}
        calls = _calls(run, encoder, [entry for entry in act.entries if entry not in settled], act, wanted)
        losses = [[int(scaled), int(plain), encoder.encode(seed)] for scaled, plain, seed in act.losses]
        roots = [
            describe(name, run.parameters.prefix_of(name), run.roster.roots[name], tensors)
            for name in sorted(encoder.used)
        ]
    limit = session.options.bundle_bytes
    if tensors.nbytes > limit:
        raise Unsaveable(f"{_size(tensors.nbytes)} of tensors, more than the {_size(limit)} that a bundle may have")
    free = shutil.disk_usage(session.writer.folder).free
    if tensors.nbytes * _SPARE > free:
        raise Unsaveable(f"{_size(tensors.nbytes)} of tensors, with only {_size(free)} free on the disk")
    document = {
        "tensonde": __version__,
        "framework": f"torch {torch.__version__}",
        "step": trace.step,
        "rank": session.rank,
        "trigger": trigger,
        "exact": trace.exact,
        "notes": list(trace.notes),
        "program": program(),
        "settings": settings(),
        "batch": batch,
        "roots": roots,
        "calls": calls,
        "losses": losses,
        "target": int(wanted) if wanted is not None else None,
        "tensors": tensors.facts,
        "results": {
            **results(outcome, leaf_names(state, tensors.name_of)),
            "scalars": scalars(outcome),
            "failure": failure(trace),
        },
    }
    written = session.writer.bundle(trace.step, document, tensors.stored())
    if written is None:
        raise Unsaveable("a recording that is closed")
    folder, size = written
    return str(folder.relative_to(session.writer.folder)), size


def _addresses(run: RunState) -> tuple[dict[int, Path], dict[int, Path]]:
    """Of every module, and of every parameter and buffer, by id."""
    modules: dict[int, Path] = {}
    state: dict[int, Path] = {}
    for name, root in list(run.roster.roots.items()):
        for path, module in root.named_modules():
            modules.setdefault(id(module), (name, path))
        for path, tensor in (*root.named_parameters(), *root.named_buffers()):
            state.setdefault(id(tensor), (name, path))
    return modules, state


def _settled(act: Reenactment, outcome: Outcome, state: dict[int, Path]) -> list[TapedCall]:
    """Calls that take a little out of something large, a batch out of a data set: the little is written instead.

    Not where something is changed in place, for the values are then no longer what these calls gave.
    """
    functions = [entry for entry in act.entries if not isinstance(entry.call, nn.Module)]
    if any(in_place(getattr(entry.call, "__name__", "")) or "out" in entry.kwargs for entry in functions):
        return []
    found = []
    for entry in functions:
        given = [tensor for tensor in tensors_in((entry.args, entry.kwargs)) if id(tensor) not in state]
        made = [outcome.values.get(slot) for slot in entry.outputs]
        if made and all(value is not None and not value.requires_grad for value in made):
            size = sum(_nbytes(tensor) for tensor in given)
            if size > LARGE and size > 4 * sum(_nbytes(value) for value in made if value is not None):
                found.append(entry)
    return found


def _nbytes(tensor: Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())


def _calls(
    run: RunState, encoder: Encoder, entries: list[TapedCall], act: Reenactment, wanted: Slot | None
) -> list[dict[str, Any]]:
    """What cannot be written is left out where nothing depends on it."""
    needed = _needed(entries, [slot for loss in act.losses for slot in loss[:2]], wanted)
    found = []
    for entry in entries:
        try:
            found.append(_call(run, encoder, entry))
        except Unsaveable:
            if id(entry) in needed:
                raise
    return found


def _call(run: RunState, encoder: Encoder, entry: TapedCall) -> dict[str, Any]:
    if isinstance(entry.call, nn.Module):
        what: dict[str, Any] = {"module": encoder.address(entry.call)}
    else:
        name = name_of(entry.call)
        if name is None:
            raise Unsaveable(f"a call of {getattr(entry.call, '__name__', entry.call)}")
        what = {"function": name}
    source, owner, kind = entry.where(run)
    return {
        **what,
        "args": [encoder.encode(value) for value in entry.args],
        "kwargs": {name: encoder.encode(value) for name, value in entry.kwargs.items()},
        "outputs": [int(slot) for slot in entry.outputs],
        "random": encoder.tensors.random(entry.random) if entry.random is not None else None,
        "grad": entry.grad,
        "autocast": [[device, str(dtype).removeprefix("torch.")] for device, dtype in entry.autocast],
        "buffers": [[encoder.encode(buffer), encoder.tensors.value(content)] for buffer, content in entry.buffers],
        "source": to_json(source),
        "owner": [owner, kind],
    }


def _needed(entries: Sequence[TapedCall], slots: list[Slot], wanted: Slot | None) -> set[int]:
    """The calls that the losses and the wanted value come from, and all that change something in place."""
    wanted_slots = {*slots, *([wanted] if wanted is not None else [])}
    found: set[int] = set()
    for entry in reversed(entries):
        changes = not isinstance(entry.call, nn.Module) and in_place(getattr(entry.call, "__name__", ""))
        if isinstance(entry.call, nn.Module) or changes or wanted_slots.intersection(entry.outputs):
            found.add(id(entry))
            wanted_slots.update(_slots((entry.args, entry.kwargs)))
    return found


def _slots(value: Any) -> list[Slot]:
    if isinstance(value, Slot):
        return [value]
    if isinstance(value, list | tuple):
        return [slot for item in value for slot in _slots(item)]
    return [slot for item in value.values() for slot in _slots(item)] if isinstance(value, dict) else []


def leaf_names(state: dict[int, Path], name_of: Callable[[Tensor], str]) -> Callable[[Tensor], str]:
    """What a gradient goes by: the address of its parameter, else the name of its tensor in the bundle."""

    def name(leaf: Tensor) -> str:
        path = state.get(id(leaf))
        return "/".join(path) if path is not None else name_of(leaf)

    return name


def scalars(outcome: Outcome) -> dict[str, Any]:
    """Results of one number, to say by how much one differs."""
    return {
        str(int(slot)): float(value.detach())
        for slot, value in outcome.values.items()
        if value.numel() == 1 and value.is_floating_point()
    }


def failure(trace: Trace) -> dict[str, Any] | None:
    """The op where it began, if something is not finite."""
    origin = forward_origin(trace, trace.loss) if trace.loss is not None else None
    if origin is not None:
        return _op(origin.op, "forward")
    op = backward_origin(trace)
    return _op(op, "backward") if op is not None else None


def _op(op: OpRecord, phase: str) -> dict[str, Any]:
    return {"op": op.op, "site": op.site, "phase": phase, "source": to_json(op.source)}


def _size(count: int) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000  # type: ignore[assignment]
    return f"{count:.4g} GB"
