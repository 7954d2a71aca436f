"""Which module and which parameter of one run is which of the other: by name, else by type, shape, order and values.

The user's map wins; a name in it stands for everything below it, too. Modules without parts are paired first, as sequences
in the order in which they are called; a module with parts is the one whose parts are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from tensonde.compare.distance import distance
from tensonde.compare.side import Side
from tensonde.model.trace import CallRecord, Trace, WeightRecord

_ENOUGH = 0.6
"""So large a share of the names in common means that names mean the same."""
_EQUAL = 1e-6


@dataclass(frozen=True)
class Pairing:
    """Names of A to names of B."""

    modules: Mapping[str, str]
    weights: Mapping[str, str]
    unmatched_a: tuple[str, ...]
    unmatched_b: tuple[str, ...]
    transposed: tuple[str, ...] = ()
    """Parameters of B that are the transposes of A's."""

    def module(self, name: str) -> str | None:
        return "" if not name else self.modules.get(name)


@dataclass(frozen=True)
class _Leaf:
    name: str
    type: str
    shapes: tuple[Any, ...]
    outputs: tuple[Any, ...]


def pair(a: Side, b: Side, chosen: Mapping[str, str] | None = None) -> Pairing:
    modules = {
        mine: theirs
        for mine in a.modules
        if (theirs := renamed(mine, chosen or {})) is not None and theirs in b.modules
    }
    common = [name for name in a.modules if name in b.modules]
    if len(common) >= _ENOUGH * max(1, min(len(a.modules), len(b.modules))):
        taken = set(modules.values())
        for name in common:
            if name not in modules and name not in taken and _alike(a, b, name, name):
                modules[name] = name
    trace_a, trace_b = _first(a), _first(b)
    if trace_a is not None and trace_b is not None:
        leaves_a, leaves_b = _leaves(a, trace_a), _leaves(b, trace_b)
        _pair_equals(trace_a, trace_b, leaves_a, leaves_b, modules)
        _pair_leaves(leaves_a, leaves_b, modules)
        _pair_holders(trace_a, trace_b, modules)
    weights = _pair_weights(a, b, trace_a, trace_b, modules, chosen or {})
    turned = _pair_transposed(_weights(a, trace_a), _weights(b, trace_b), weights) if a.framework != b.framework else ()
    return Pairing(
        modules,
        weights,
        tuple(name for name in _called(trace_a) if name not in modules),
        tuple(name for name in _called(trace_b) if name not in set(modules.values())),
        turned,
    )


def renamed(name: str, chosen: Mapping[str, str]) -> str | None:
    """The name that the user's map gives it, if any."""
    if name in chosen:
        return chosen[name]
    for prefix in sorted(chosen, key=len, reverse=True):
        if name.startswith(f"{prefix}."):
            return f"{chosen[prefix]}.{name[len(prefix) + 1 :]}"
    return None


def _called(trace: Trace | None) -> list[str]:
    """Modules that take part in the first step."""
    return list(dict.fromkeys(call.module for call in trace.calls)) if trace is not None else []


def _alike(a: Side, b: Side, mine: str, theirs: str) -> bool:
    """The same kind of module: the same class, or classes of the users' own, which may have any name."""
    one, other = a.modules[mine], b.modules[theirs]
    return one.get("type") == other.get("type") or not (one.get("library") or other.get("library"))


def _first(side: Side) -> Trace | None:
    return side.traces[min(side.traces)] if side.traces else None


# -- modules without parts -----------------------------------------------------------------------


def _leaves(side: Side, trace: Trace) -> list[_Leaf]:
    """In the order in which they are first called."""
    holders = {call.parent for call in trace.calls}
    shapes: dict[str, list[Any]] = {}
    for fact in side.parameters.values():
        shapes.setdefault(str(fact.get("owner", "")), []).append(tuple(fact.get("shape", ())))
    found: dict[str, _Leaf] = {}
    for call in sorted(trace.calls, key=lambda call: call.number):
        if call.number not in holders and call.module not in found:
            outputs = tuple(tensor.shape for tensor in call.outputs)
            found[call.module] = _Leaf(call.module, call.type, tuple(shapes.get(call.module, ())), outputs)
    return list(found.values())


def _pair_equals(a: Trace, b: Trace, mine: Sequence[_Leaf], theirs: Sequence[_Leaf], modules: dict[str, str]) -> None:
    """Modules that begin with the same random weights are the same, wherever they stand."""
    drawn_a, drawn_b = _drawn(a), _drawn(b)
    taken = set(modules.values())
    free = {
        drawn_b[leaf.name]: leaf.name for leaf in reversed(theirs) if leaf.name in drawn_b and leaf.name not in taken
    }
    for leaf in mine:
        if leaf.name not in modules and leaf.name in drawn_a and drawn_a[leaf.name] in free:
            modules[leaf.name] = free.pop(drawn_a[leaf.name])


def _drawn(trace: Trace) -> dict[str, tuple[Any, ...]]:
    """What the first weight with different elements begins with, by its module."""
    found: dict[str, tuple[Any, ...]] = {}
    for weight in trace.weights:
        if weight.before and weight.before["std"] > 0:
            fields = (weight.before[name] for name in ("min", "max", "norm"))
            found.setdefault(weight.name.rpartition(".")[0], (weight.shape, *(f"{value:.6e}" for value in fields)))
    return found


def _pair_leaves(mine: Sequence[_Leaf], theirs: Sequence[_Leaf], modules: dict[str, str]) -> None:
    keys = (
        lambda leaf: (leaf.type, leaf.shapes, leaf.outputs),
        lambda leaf: (leaf.shapes, leaf.outputs) if leaf.shapes else (leaf.type, leaf.outputs),
        lambda leaf: leaf.type,
    )
    for key in keys:
        taken = set(modules.values())
        left = [leaf for leaf in mine if leaf.name not in modules]
        right = [leaf for leaf in theirs if leaf.name not in taken]
        matcher = SequenceMatcher(None, [key(leaf) for leaf in left], [key(leaf) for leaf in right], autojunk=False)
        for block in matcher.get_matching_blocks():
            for k in range(block.size):
                modules[left[block.a + k].name] = right[block.b + k].name


def _pair_holders(a: Trace, b: Trace, modules: dict[str, str]) -> None:
    inside_a, inside_b = _inside(a), _inside(b)
    scores = []
    for name, parts in inside_a.items():
        translated = {modules.get(part, part) for part in parts}
        for other, held in inside_b.items():
            share = len(translated & held) / len(translated | held)
            if share > 0.3:
                scores.append((share, -abs(name.count(".") - other.count(".")), name, other))
    taken = set(modules.values())
    for _, _, name, other in sorted(scores, key=lambda score: score[:2], reverse=True):
        if name not in modules and other not in taken:
            modules[name] = other
            taken.add(other)


def _inside(trace: Trace) -> dict[str, set[str]]:
    """The modules without parts that are called inside each module with parts."""
    calls = {call.number: call for call in trace.calls}
    holders = {call.parent for call in trace.calls}
    found: dict[str, set[str]] = {}
    for call in trace.calls:
        if call.number not in holders:
            around: CallRecord | None = call
            while around is not None and around.parent is not None:
                around = calls.get(around.parent)
                if around is not None:
                    found.setdefault(around.module, set()).add(call.module)
    return found


# -- parameters ----------------------------------------------------------------------------------


def _pair_weights(
    a: Side,
    b: Side,
    trace_a: Trace | None,
    trace_b: Trace | None,
    modules: Mapping[str, str],
    chosen: Mapping[str, str],
) -> dict[str, str]:
    mine, theirs = _weights(a, trace_a), _weights(b, trace_b)
    found: dict[str, str] = {}
    free = dict(theirs)

    def take(name: str, other: str) -> None:
        found[name] = other
        del free[other]

    for name in mine:
        owner, _, attribute = name.rpartition(".")
        wanted = renamed(name, chosen) or _join(modules.get(owner, owner), attribute)
        if wanted in free and mine[name][0] == free[wanted][0]:
            take(name, wanted)
    by_owner: dict[str, list[str]] = {}
    for other in free:
        by_owner.setdefault(other.rpartition(".")[0], []).append(other)
    for name in [name for name in mine if name not in found]:
        owner = name.rpartition(".")[0]
        for other in by_owner.get(modules.get(owner, ""), []):
            if other in free and mine[name][0] == free[other][0]:
                take(name, other)
                break
    for same_values in (True, False):
        for name in [name for name in mine if name not in found]:
            shape, record = mine[name]
            for other, (their_shape, their_record) in list(free.items()):
                if shape == their_shape and (not same_values or _equal(record, their_record)):
                    take(name, other)
                    break
    return found


def _pair_transposed(mine: Mapping[str, Any], theirs: Mapping[str, Any], found: dict[str, str]) -> tuple[str, ...]:
    """What is left: a matrix that multiplies from the other side, in order."""
    taken, turned = set(found.values()), []
    for name in [name for name in mine if name not in found]:
        for other, (shape, _) in theirs.items():
            if other not in taken and len(shape) == 2 and shape[::-1] == mine[name][0]:
                found[name] = other
                taken.add(other)
                turned.append(other)
                break
    return tuple(turned)


def _join(owner: str, attribute: str) -> str:
    return f"{owner}.{attribute}" if owner else attribute


def _weights(side: Side, trace: Trace | None) -> dict[str, tuple[tuple[int, ...], WeightRecord | None]]:
    if trace is not None and trace.weights:
        return {weight.name: (weight.shape, weight) for weight in trace.weights}
    return {name: (tuple(fact["shape"]), None) for name, fact in side.parameters.items()}


def _equal(a: WeightRecord | None, b: WeightRecord | None) -> bool:
    if a is None or b is None or not a.before or a.before["std"] == 0:
        return False
    return distance(a.before, b.before).relative < _EQUAL
