"""Steps that are laid out differently: one run takes its batch at once, the other in micro-batches (gradient accumulation).

Ops and activations then have other shapes, and there is nothing to hold them against. What one optimizer step is given and what it
does can be compared: the inputs of all micro-batches taken together, the mean loss, the gradients, the updates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tensonde.compare.distance import Stats, epsilon, sketch
from tensonde.compare.forward import StepPair
from tensonde.compare.pairing import Pairing
from tensonde.compare.side import Side
from tensonde.compare.training import Part
from tensonde.compare.verdict import Divergence
from tensonde.model.randomness import RANDOM_OPS
from tensonde.model.trace import CallRecord, TensorFact, Trace

_SAME = 1e-5
"""Sums over a batch that was cut in another way agree to this."""


class Unclear(Exception):
    """The runs cannot be told apart, nor shown to be the same; says why."""


@dataclass(frozen=True)
class Layout:
    """How both runs cut the batch of one step: the shapes of what `module` is given, call by call."""

    module: str
    other: str
    a: tuple[tuple[int, ...], ...]
    b: tuple[tuple[int, ...], ...]

    @property
    def noise(self) -> float:
        """The relative difference that another order of the sums makes, in gradients whose terms mostly cancel."""
        return 8 * epsilon("float32") * math.sqrt(max(len(self.a), len(self.b)))

    def sentence(self) -> str:
        return (
            f"The steps are laid out differently: {self.module} is given {_cut(self.a)} per optimizer step in A and {_cut(self.b)} in B. "
            "So inputs (taken together), mean loss, gradients and updates were compared, not single ops."
        )


def layout_of(a: Trace, b: Trace, pairing: Pairing) -> Layout | None:
    """Where the same number of elements is given to a root in another number of calls."""
    mine, theirs = _given(a), _given(b)
    for module, calls in mine.items():
        partner = pairing.module(module)
        others = theirs.get(partner or "", [])
        if not others or len(calls) == len(others) or not calls[0].requires_grad_any:
            continue
        one, other = ([given.shape for given in cut] for cut in (calls, others))
        if sum(map(math.prod, one)) == sum(map(math.prod, other)):
            return Layout(module, partner or "", tuple(one), tuple(other))
    return None


def by_steps(a: Side, b: Side, pairing: Pairing) -> tuple[Side, Side]:
    """Where a step of one has micro-batches, its loss is their mean."""
    for step in set(a.traces) & set(b.traces):
        if layout_of(a.traces[step], b.traces[step], pairing) is not None:
            return replace(a, losses=a.means), replace(b, losses=b.means)
    return a, b


def judged(pair: StepPair, layout: Layout, step: int, a: Side, b: Side) -> Divergence | None:
    """Data and loss of the step; gradients and updates are compared as always."""
    mine, theirs = _pools(pair.a), _pools(pair.b)
    for key, pool in mine.items():
        partner = pair.pairing.module(key[0]) if key[0] else ""
        other = theirs.get((partner or "", *key[1:]))
        if other is not None and not pool.same(other):
            site = f"{key[0] or key[1]}:in" + (f"[{key[2]}]" if key[2] else "")
            why = f"{site} of step {step} has other values, all micro-batches taken together: data, before the model has computed anything."
            return Divergence(
                "data",
                site,
                site,
                step,
                "data",
                why,
                {"mean": [pool.mean, other.mean], "norm": [pool.norm, other.norm]},
            )
    one, two = a.losses.get(step), b.losses.get(step)
    if one is None or two is None or _close(one, two, 1e-4):
        return None
    mixing = [call for call in pair.a.calls if call.training and call.type.startswith(("BatchNorm", "SyncBatchNorm"))]
    why = f"Both runs are given the same in step {step}, but their mean losses are {one:.6g} and {two:.6g}. "
    why += (
        f"{mixing[0].module} ({mixing[0].type}) normalises each micro-batch by itself, so that their size matters."
        if mixing
        else "The targets differ, or what the model or the loss computes depends on the size of a micro-batch."
    )
    module = mixing[0].module if mixing else ""
    site = f"{module}:out" if module else "loss:value"
    return Divergence("forward", site, site, step, "forward", why, {"loss": [one, two]}, module=module)


def accumulated(parts: list[Part], layout: Layout, step: int) -> Divergence:
    """`parts`: the parameters whose gradients differ at the end of the step."""
    worst = max(parts, key=lambda part: part.found.absolute)
    why = factor(parts, layout) or (
        f"Data and loss of step {step} agree, the gradients that the optimizer step adds up do not ({len(parts)} parameters)."
    )
    return Divergence(
        "backward", f"{worst.name}:grad", f"{worst.other}:grad", step, "backward", why,
        {**worst.found.evidence(), "gradient_norm": [worst.a.get("norm"), worst.b.get("norm")], "parameters": len(parts)},
        module=worst.name.rpartition(".")[0],
    )  # fmt: skip


def certain(first: Divergence, pair: StepPair, layout: Layout | None) -> Divergence:
    """In another layout dropout draws other masks, and what differs may be no more than that: raises Unclear."""
    random = random_ops(pair) if layout is not None and first.judgement in ("forward", "backward") else []
    if random and layout is not None:
        raise Unclear(
            f"{layout.sentence()} They differ in step {first.step}, but {', '.join(random[:3])} draws random numbers, which come out "
            "differently in another layout; set it to 0 in both, and compare again."
        )
    return first


def factor(parts: list[Part], layout: Layout) -> str:
    """A sentence where all gradients differ by the number of micro-batches; "" otherwise."""
    pairs = [(sketch(part.a), sketch(part.b)) for part in parts]
    for ratio, more, count in ((len(layout.b), "B", len(layout.b)), (1 / len(layout.a), "A", len(layout.a))):
        if count > 1 and all(
            one is not None and two is not None and float(abs(two - ratio * one).max()) <= 0.01 * float(abs(two).max())
            for one, two in pairs
        ):
            return (
                f"The gradients of {more} are {count} times as large: it adds up {count} micro-batches "
                f"and does not divide their losses by {count}."
            )
    return ""


def random_ops(pair: StepPair) -> list[str]:
    """Modules, or ops, that draw random numbers while they train; in another layout they draw others."""
    found = []
    for op in pair.a.ops:
        drawn = float(op.arguments.get("p", op.arguments.get("dropout_p", op.arguments.get("dropout", 0.0))) or 0.0)
        if op.op in RANDOM_OPS and drawn > 0 and op.training is not False and op.arguments.get("training") is not False:
            found.append(op.module or op.site)
    return list(dict.fromkeys(found))


# -- what a step is given --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Given:
    shape: tuple[int, ...]
    requires_grad_any: bool


def _given(trace: Trace) -> dict[str, list[_Given]]:
    """By root, call by call: the first tensor that it is given."""
    found: dict[str, list[_Given]] = {}
    for call in _roots(trace):
        if call.inputs:
            trains = any(fact.requires_grad for fact in call.outputs)
            found.setdefault(call.module, []).append(_Given(call.inputs[0].shape, trains))
    return found


def _roots(trace: Trace) -> list[CallRecord]:
    calls = sorted(trace.calls, key=lambda call: call.number)
    return [call for call in calls if call.parent is None and call.grad_enabled]


@dataclass
class _Pool:
    """Statistics of several tensors taken together."""

    count: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, stats: Stats) -> None:
        self.count += stats["count"]
        self.total += stats["mean"] * stats["count"]
        self.squares += stats["norm"] ** 2
        self.low, self.high = min(self.low, stats["min"]), max(self.high, stats["max"])

    @property
    def mean(self) -> float:
        return self.total / max(1.0, self.count)

    @property
    def norm(self) -> float:
        return math.sqrt(self.squares)

    def same(self, other: _Pool) -> bool:
        size = max(self.norm, other.norm) / math.sqrt(max(1.0, self.count))
        return (
            self.count == other.count
            and _close(self.norm, other.norm, _SAME)
            and abs(self.mean - other.mean) <= _SAME * size
            and all(
                abs(one - two) <= _SAME * max(abs(one), size)
                for one, two in ((self.low, other.low), (self.high, other.high))
            )
        )


def _pools(trace: Trace) -> Mapping[tuple[str, str, int], _Pool]:
    """What the roots are given, and what ops outside of modules are given beside the model's outputs: targets."""
    found: dict[tuple[str, str, int], _Pool] = {}

    def add(key: tuple[str, str], facts: Iterable[TensorFact]) -> None:
        for k, fact in enumerate(facts):
            if fact.stats and not fact.name and not fact.requires_grad and fact.shape:
                found.setdefault((*key, k), _Pool()).add(fact.stats)

    for call in _roots(trace):
        add((call.module, ""), call.inputs)
    for op in trace.ops:
        if op.module == "" and any(fact.requires_grad for fact in op.inputs):
            add(("", op.op), op.inputs)
    return found


def _close(a: float, b: float, share: float) -> bool:
    return a == b or abs(a - b) <= share * max(abs(a), abs(b))


def _cut(shapes: tuple[tuple[int, ...], ...]) -> str:
    kinds = list(dict.fromkeys(shapes))
    count = f"{len(shapes)} micro-batches of shape" if len(shapes) > 1 else "one batch of shape"
    return f"{count} {' and '.join(str(list(shape)) for shape in kinds[:3])}"
