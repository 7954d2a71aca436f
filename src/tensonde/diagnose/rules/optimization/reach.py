"""What an output can be at all: layers that give the same whatever comes in, activations that cannot reach the targets,
targets that move with the output."""

from __future__ import annotations

from math import prod

from tensonde.diagnose.analysis.answers import answers
from tensonde.diagnose.analysis.distances import distances
from tensonde.diagnose.analysis.flow import PASSING, made_by, parameters_behind, producer
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import chosen, where
from tensonde.model.finding import Finding
from tensonde.model.ops import RANGES, Trait, ops
from tensonde.model.site import SourceLine
from tensonde.model.trace import OpRecord, TensorFact, Trace

_DISTANCES = ops(Trait.DISTANCE)
NOISE, SHARE = 0.5, 0.2
"""How far below 0, in deviations of the targets, the lowest must be where a ReLU gives the output, and how many."""
BEYOND = 0.5
"""Targets this much beyond the range, as a share of its width, are no rounding or noise around it."""


@rule("output-cannot-reach-targets", severity="error", phase="forward")
def out_of_reach(case: Case) -> list[Finding]:
    """A distance (mean squared error and the like, or a hand-written difference) compares the output of a bounded
    activation with targets far outside its range: a tanh never gives 30, a ReLU never gives -3. The activation
    saturates, and the loss stays at the gap. A ReLU reaches no target below 0, so a fifth of such targets is enough.
    Outputs that are scaled afterwards are not reported; nor are targets slightly beyond the range.
    """
    measured = [(trace, *found) for trace in case.stages for found in distances(trace)]
    for trace, loss, output, target in measured:
        op = made_by(trace, output)
        gap = _gap(op, target) if op is not None else ""
        if op is None or not gap:
            continue
        return [
            case.finding(
                f"{op.op}{where(op)} gives the output, and the targets of {loss.op} go {gap}",
                "Remove the activation from the last layer, or scale the targets into its range, or its output into theirs.",
                step=trace.step,
                site=f"{op.site}:out",
                op=op.op,
                source=chosen(case, op),
                evidence={
                    "target.min": target.stats.get("min"),
                    "target.max": target.stats.get("max"),
                    "target.mean": target.stats.get("mean"),
                    "loss": str(loss.source or loss.op),
                },
                confidence=0.92,
            )
        ]
    return []


def _gap(op: OpRecord, target: TensorFact) -> str:
    low, high = target.stats.get("min"), target.stats.get("max")
    if low is None or high is None or low != low or high != high:
        return ""
    name = op.op.rstrip("_")
    if name == "relu" and low < -NOISE * target.stats.get("std", 0.0):
        below = target.stats.get("negative", 0.0) / max(target.stats.get("count", 0.0), 1.0)
        return f"down to {low:.4g} ({below:.0%} of them are below 0)" if below >= SHARE else ""
    if name not in RANGES:
        return ""
    least, most = RANGES[name]
    margin = BEYOND * (most - least)
    if high > most + margin:
        return f"up to {high:.4g}, beyond its {most:g}"
    return f"down to {low:.4g}, below its {least:g}" if low < least - margin else ""


@rule("constant-output-is-best", severity="warning", phase="forward")
def constant_is_best(case: Case) -> list[Finding]:
    """Every term of the loss is a distance between two outputs that are both trained (two views of one sample), and
    no term contains anything else: data, negatives, a variance to keep up. One constant for everything makes the loss
    zero, and that is what the model learns. Stopping the gradient of one side, as SimSiam and BYOL do, prevents this.
    Derivatives with respect to inputs (a residual of an equation) are not reported.
    """
    trace = case.first
    stepping = case.stepping
    if trace is None or trace.loss is None or len(stepping) != 1 or case.facts.sequence.foreign_leaves:
        return []
    terms = _terms(trace, trace.ops[trace.loss])
    if not terms:
        return []
    sides = [(parameters_behind(trace, [term.inputs[0]]), parameters_behind(trace, [term.inputs[1]])) for term in terms]
    trained = {name for name, fact in case.facts.parameters.items() if fact.optimizers}
    if not all(a & trained and b & trained for a, b in sides):
        return []
    first = terms[0]
    return [
        case.finding(
            f"{first.op} pulls two trained outputs together and nothing in the loss keeps them apart: a constant output is best",
            (
                "detach() one side (with a predictor on the other), or add something that penalizes a constant: negatives, a variance term, labels."
            ),
            at=first,
            evidence={"terms": [f"{term.op} {term.source or ''}".strip() for term in terms[:8]]},
            confidence=0.85,
        )
    ]


_ADDING = ops(Trait.ADDS)
_COMBINING = ops(Trait.COMBINES)
_POWERS = ops(Trait.SQUARES | Trait.MAGNITUDES)


def _terms(trace: Trace, loss: OpRecord) -> list[OpRecord]:
    """The distances of two outputs that a loss is the sum of; empty if there is anything else in it."""
    found: list[OpRecord] = []
    waiting = [loss]
    for _ in range(64):
        if not waiting:
            return found
        op = waiting.pop(0)
        live = [fact for fact in op.inputs if fact.requires_grad]
        if op.op in (*_DISTANCES, "cosine_similarity"):
            pair = op.inputs[:2]
            if len(pair) < 2 or not all(fact.requires_grad and not _with_data(trace, fact) for fact in pair):
                return []
            found.append(op)
            continue
        if op.op == "sub" and len(live) == 2 and live[0].shape == live[1].shape and len(live[0].shape) >= 2:
            found.append(op)
            continue
        if (
            op.op in (*_COMBINING, *_POWERS, *PASSING)
            and live
            and not any(fact.shape for fact in op.inputs if not fact.requires_grad)
        ):
            made = [made_by(trace, fact) for fact in live]
            if all(inner is not None for inner in made):
                waiting += [inner for inner in made if inner is not None and inner.index != op.index]
                continue
        return []
    return []


def _with_data(trace: Trace, fact: TensorFact) -> bool:
    """Whether data was added to it, as a reward is to the value of the next state."""
    op = made_by(trace, fact)
    return (
        op is not None and op.op in _ADDING and any(prod(one.shape) > 1 and not one.requires_grad for one in op.inputs)
    )


@rule("target-is-input", severity="error", phase="forward")
def target_is_input(case: Case) -> list[Finding]:
    """In every batch, the targets of cross_entropy are exactly the numbers that the model got, and the model sees
    each position (and those before it) directly: it learns only to repeat what it sees. A language model's targets
    are shifted by one. Attention or anything else beside residual connections does not hide the position. If a state
    computed from the inputs lies in between (an autoencoder), or positions are hidden, reproducing the input is a
    real task.

    Also reported if a model adds what it computes to its input, and the sum is compared with this input: in two or
    more of the tested steps, replacing what it computes by a constant reduces the loss to nothing.
    """
    nothing = [a for a in case.facts.answers if a.experiment == "nothing-learnt" and a.part == "passed on"]
    if len(nothing) > 1:
        last = nothing[-1]
        return [
            case.finding(
                f"The target is the input: the model adds to {last.names[0] or 'its input'}, is compared with it, and {last.why}",
                "Compare with the target that belongs to the input, not with the input itself.",
                step=last.step,
                site="loss:value",
                source=last.line,
                evidence={**last.numbers, "steps_asked": [a.step for a in nothing], "standing": "confirmed"},
                confidence=0.93,
            )
        ]
    copies = case.facts.batches.copies
    trace = case.first
    if trace is None or copies.looked_at < 8 or copies.same < copies.looked_at:
        return []
    if any(answer.part == "copied" and answer.healthy for answer in answers(case, "independence")):
        return []  # it was tried: a token changes what is said of others as well
    for loss in trace.ops:
        if loss.op != "cross_entropy" or len(loss.inputs) < 2:
            continue
        seen = _copied_along(trace, loss) or _directly(trace, loss) or _step_by_step(trace, loss)
        if seen is None:
            continue
        return [
            case.finding(
                "The targets are the inputs, position by position: the model learns to copy",
                "Shift them by one: inputs ids[:, :-1], targets ids[:, 1:].",
                site=f"{loss.site}:out",
                op=loss.op,
                source=_target_line(case) or loss.source,
                evidence={
                    "batches": copies.looked_at,
                    "same": copies.same,
                    "embedded_at": str(seen.source or ""),
                },
                confidence=0.9,
            )
        ]
    return []


def _target_line(case: Case) -> SourceLine | None:
    return case.facts.batches.target_line


_BY_POSITION = ops(Trait.EACH_POSITION | Trait.SELECTS)
_RECURRENT = ops(Trait.RECURRENT)


def _copied_along(trace: Trace, loss: OpRecord) -> OpRecord | None:
    """The embedding whose every position reaches the logits of that position along residual connections, whatever stands
    beside them: on the way is nothing but layers that work position by position."""
    tokens = prod(loss.inputs[1].shape)
    waiting, seen = [loss.inputs[0]], set[int]()
    while waiting:
        fact = waiting.pop()
        if fact.producer is None or fact.producer in seen or not fact.requires_grad:
            continue
        seen.add(fact.producer)
        op = trace.ops[fact.producer]
        if op.op == "embedding":
            if _alike(op.inputs[0], loss.inputs[1]):
                return op
        elif op.op in PASSING or (op.op in _BY_POSITION and prod(fact.shape[:-1]) == tokens):
            waiting += op.inputs
    return None


def _alike(given: TensorFact, target: TensorFact) -> bool:
    """As many numbers, of the same size: a decoder is given its targets one later."""
    fields = ("mean", "norm", "min", "max")
    same = [given.stats.get(name) == target.stats.get(name) is not None for name in fields]
    return prod(given.shape) == prod(target.shape) and all(same)


def _directly(trace: Trace, loss: OpRecord) -> OpRecord | None:
    """The embedding whose every position reaches the logits of that position through nothing but layers that work
    position by position, or from the past on."""
    waiting, seen = [loss.inputs[0]], set[int]()
    found, begun = None, False
    while waiting:
        fact = waiting.pop()
        if fact.producer is None or fact.producer in seen or not fact.requires_grad:
            continue
        seen.add(fact.producer)
        op = trace.ops[fact.producer]
        if op.op == "embedding":
            found = op if prod(op.inputs[0].shape) == prod(loss.inputs[1].shape) else found
            continue
        if op.op in _RECURRENT:
            if op.outputs[0].shape[-1] == 2 * op.outputs[1].shape[-1]:
                return None  # both directions
            begun |= any(given.requires_grad and not given.name for given in op.inputs[1:])
            waiting.append(op.inputs[0])
            continue
        causal = op.op == "scaled_dot_product_attention" and op.arguments.get("is_causal") is True
        if not causal and op.op not in _BY_POSITION and op.op not in PASSING:
            return None
        waiting += op.inputs
    if found is not None and begun and not _same(found.inputs[0], loss.inputs[1]):
        return None  # a decoder that begins with the state of others: it may well be given the targets one later
    return found


def _same(given: TensorFact, target: TensorFact) -> bool:
    """The very numbers, in the same order, as far as projections tell."""
    sketch = [name for name in target.stats if name.startswith("sketch")]
    return _alike(given, target) and bool(sketch) and all(given.stats.get(n) == target.stats[n] for n in sketch)


def _step_by_step(trace: Trace, loss: OpRecord) -> OpRecord | None:
    """The embedding of the first position, where a loop stacks the logits of one position after the other and the first of them is
    computed from the first of the targets. A decoder that is given its targets one later computes it from a start symbol."""
    stack = made_by(trace, loss.inputs[0])
    if stack is None or stack.op != "stack" or len(stack.inputs) < 3:
        return None
    waiting, seen = [stack.inputs[0]], set[int]()
    while waiting:
        op = producer(trace, waiting.pop())
        if op is None or op.index in seen:
            continue
        seen.add(op.index)
        if op.op == "embedding":
            picked = producer(trace, op.inputs[0])
            if picked is not None and _is_first_column(picked) and _same(picked.inputs[0], loss.inputs[1]):
                return op
            continue
        waiting += op.inputs
    return None


def _is_first_column(op: OpRecord) -> bool:
    """`tokens[:, 0]`"""
    if op.op == "select":
        return (op.arguments.get("dim"), op.arguments.get("index")) == (1, 0)
    return op.op == "getitem" and op.arguments.get("1") == [":", 0]
