"""Two dumps or checkpoints to a verdict: their tensors one by one in execution order, whatever framework wrote them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from tensonde.compare.distance import epsilon
from tensonde.compare.pairing import renamed
from tensonde.compare.stream import Measured, measure
from tensonde.compare.verdict import Divergence, Judgement, Setting, Verdict
from tensonde.model.site import Address
from tensonde.store.sources import Entry, TensorSource
from tensonde.store.sources.source import elements

Matched = tuple[Entry, Entry]
Work = Callable[[TensorSource, TensorSource, Sequence[Matched]], Iterable[Measured | None]]
_JUDGEMENTS: Mapping[str, Judgement] = {
    "forward": "forward", "backward": "backward", "optimizer": "optimizer", "data": "data",
}  # fmt: skip


@dataclass(frozen=True)
class Found:
    """A pair of tensors that differ by more than rounding; `measured` is None where their sizes differ."""

    a: Entry
    b: Entry
    measured: Measured | None
    allowed: float


def measured_here(a: TensorSource, b: TensorSource, pairs: Sequence[Matched]) -> Iterator[Measured | None]:
    """One after the other in this process."""
    for one, other in pairs:
        yield measure(a, one, b, other) if elements(one) == elements(other) else None


def compare_sources(
    a: TensorSource,
    b: TensorSource,
    chosen: Mapping[str, str] | None = None,
    *,
    work: Work = measured_here,
    advance: Callable[[int], None] = lambda size: None,
) -> Verdict:
    """`advance` gets the number of bytes read. Raises RecordingError where a tensor cannot be read."""
    labels = (str(a.path), str(b.path))
    if not a.entries or not b.entries:
        empty = labels[0] if not a.entries else labels[1]
        return Verdict("incomparable", notes=(f"{empty} holds no tensor.",), labels=labels)
    pairs, names = match(a.entries, b.entries, chosen or {})
    if not pairs:
        note = (
            f"{labels[0]} ({a.kind}, e.g. {a.entries[0].site}) and {labels[1]} ({b.kind}, e.g. {b.entries[0].site}) "
            "have no tensor in common; name pairs with --map."
        )
        return Verdict("incomparable", notes=(note,), labels=labels)
    found: list[Found] = []
    equal, worst, ulp = 0, 0.0, 0
    bad: set[tuple[int, str, int]] = set()
    depth: dict[tuple[int, int], int] = {}
    for (one, other), measured in zip(pairs, work(a, b, pairs), strict=True):
        advance(one.nbytes + other.nbytes)
        place = depth[one.rank, one.step] = depth.get((one.rank, one.step), -1) + 1
        allowed = tolerance(one, other, place)
        relative = measured.distance().relative if measured is not None else math.inf
        if measured is not None and measured.equal:
            equal += 1
        if relative > allowed:
            bad.add((one.step, one.site, one.call))
            found.append(Found(one, other, measured, allowed))
        elif measured is not None:
            worst, ulp = max(worst, relative), max(ulp, measured.ulp or 0)
    first = _first(found, bad)
    taken_a, taken_b = {id(one) for one, _ in pairs}, {id(other) for _, other in pairs}
    return Verdict(
        "divergent" if first is not None else "equivalent",
        first.judgement if first is not None else "none",
        first,
        tuple(_settings(pairs)),
        {},
        tuple(dict.fromkeys(entry.site for entry in a.entries if id(entry) not in taken_a)),
        tuple(dict.fromkeys(entry.site for entry in b.entries if id(entry) not in taken_b)),
        {
            "sites": max(len(a.entries), len(b.entries)),
            "compared": len(pairs),
            "equal": equal,
            "divergent": len(found),
            "largest_rounding": worst,
            "largest_rounding_ulp": ulp,
            "bytes": sum(one.nbytes + other.nbytes for one, other in pairs),
        },
        names,
        tuple(
            f"{label}: {problem}"
            for label, source in zip(labels, (a, b), strict=True)
            for problem in source.problems[:5]
        ),
        labels,
    )


def match(
    mine: Sequence[Entry], theirs: Sequence[Entry], chosen: Mapping[str, str]
) -> tuple[list[Matched], dict[str, str]]:
    """Pairs in A's execution order, and which of them have other names."""
    waiting: dict[tuple[int, int, str, int], Entry] = {}
    steps_mine, steps_theirs = {e.step for e in mine}, {e.step for e in theirs}
    anyhow = steps_mine != steps_theirs and (steps_mine == {-1} or steps_theirs == {-1})
    for entry in theirs:
        waiting.setdefault((entry.rank, -1 if anyhow else entry.step, entry.site, entry.call), entry)
    partner: dict[int, Entry] = {}
    for entry in mine:
        name = renamed(entry.name, chosen) or entry.name
        site = name + entry.site[len(entry.name) :]
        found = waiting.pop((entry.rank, -1 if anyhow else entry.step, site, entry.call), None)
        if found is not None:
            partner[id(entry)] = found
    left, right = [e for e in mine if id(e) not in partner], list(waiting.values())
    for key in (_key, _shape):
        matcher = SequenceMatcher(None, [key(e) for e in left], [key(e) for e in right], autojunk=False)
        if len(left) * len(right) > 25_000_000:
            break  # too long for a search by order; names or a map must do
        for block in matcher.get_matching_blocks():
            for k in range(block.size):
                partner[id(left[block.a + k])] = right[block.b + k]
        taken = {id(e) for e in partner.values()}
        left, right = [e for e in left if id(e) not in partner], [e for e in right if id(e) not in taken]
    pairs = [(entry, partner[id(entry)]) for entry in mine if id(entry) in partner]
    return pairs, {one.name: other.name for one, other in pairs if one.name != other.name}


def _key(entry: Entry) -> tuple[object, ...]:
    return entry.rank, entry.step, entry.role, entry.index, entry.type, entry.shape


def _shape(entry: Entry) -> tuple[object, ...]:
    return (
        entry.rank,
        entry.step,
        entry.role,
        entry.shape,
        entry.name.rpartition(".")[2] if entry.kind == "parameter" else "",
    )


def tolerance(one: Entry, other: Entry, depth: int) -> float:
    """What rounding may make: more for coarser dtypes, deep in the network, in backward passes and in later steps.
    A stored parameter has no depth."""
    unit = epsilon(one.dtype, other.dtype)
    if one.step < 0 or (one.role in ("value", "in") and depth == 0):
        return 8 * unit
    factor = 5.0 if one.phase == "backward" else 1.0
    return min(0.05, 16 * unit * (1 + math.sqrt(depth)) * (1 + max(0, one.step)) * factor)


def _first(found: list[Found], bad: set[tuple[int, str, int]]) -> Divergence | None:
    """The first tensor in execution order; its inputs, where they were dumped, say whether it is the origin."""
    if not found:
        return None
    places = ((step, Address.of(site), call) for step, site, call in bad)
    inputs = {(step, place.name, call) for step, place, call in places if place.role == "in"}
    ordered = sorted(found, key=lambda one: (max(one.a.step, 0), one.a.order))
    for one in ordered:
        if one.a.role != "out" or (one.a.step, one.a.name, one.a.call) not in inputs:
            return _told(one, len(found), "origin")
    return _told(ordered[0], len(found), "consequence")


def _told(one: Found, count: int, role: str) -> Divergence:
    entry = one.a
    when = "" if entry.step < 0 else f" of step {entry.step}"
    if one.measured is None:
        how = f"is {entry.dtype}{list(entry.shape)} in A and {one.b.dtype}{list(one.b.shape)} in B"
        evidence: dict[str, object] = {"shape": list(entry.shape), "other_shape": list(one.b.shape)}
    else:
        apart = one.measured.distance()
        how = f"differs by {apart.relative:.3g} (rounding explains {one.allowed:.1g})"
        evidence = {**apart.evidence(), "ulp": one.measured.ulp, "nonfinite": one.measured.odd}
    judgement: Judgement = "none" if entry.step < 0 else _JUDGEMENTS.get(entry.phase, "none")
    if judgement == "forward" and entry.role == "in":
        judgement = "data"
    return Divergence(
        judgement, entry.site, one.b.site, max(entry.step, 0), entry.phase if entry.step >= 0 else "stored",
        f"{entry.site}{when} {how}; {count} tensors differ in all.",
        evidence, module=entry.name, role="origin" if role == "origin" else "consequence",
    )  # fmt: skip


def _settings(pairs: Sequence[Matched]) -> Iterator[Setting]:
    seen: set[str] = set()
    for one, other in pairs:
        if one.dtype != other.dtype and one.site not in seen:
            seen.add(one.site)
            yield Setting(f"{one.site}.dtype", one.dtype, other.dtype)
