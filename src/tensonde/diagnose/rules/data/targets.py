"""Targets that nothing can predict, and targets that the model is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from tensonde.diagnose.analysis.distances import distances
from tensonde.diagnose.analysis.flow import PASSING, consumers, made_by, producer
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, TensorFact, Trace

_DISTANCES = ops(Trait.DISTANCE)
_NOISE = ops(Trait.NOISE | Trait.UNIFORM_IN_PLACE)
_MIXING = ops(Trait.PLUS | Trait.SUBTRACTS | Trait.MIXES)
_SCALING = ops(Trait.SCALES | Trait.NEGATES)


@rule("target-is-fresh-noise", severity="error", phase="forward")
def fresh_noise(case: Case) -> list[Finding]:
    """The target of a distance (mean squared error and the like) is newly drawn noise that goes nowhere else, while
    the model's input was mixed with different noise of the same shape: the noise was drawn twice. Nothing in the
    model's input predicts its target, so the best it can learn is the mean, and the loss stays at the noise's
    variance.

    Noise that also went into the input is what a diffusion model learns to find. Targets computed from noise and
    data, noise whose average is not zero (soft labels), and inputs that are only noise (a benchmark) are not
    reported.
    """
    for trace in case.stages:
        for loss, output, target in distances(trace):
            drawn = made_by(trace, target)
            if drawn is None or drawn.op not in _NOISE or not _centred(drawn):
                continue
            before = _depends_on(trace, output)
            if drawn.index in before:
                continue
            other = _mixed_in(trace, before, prod(target.shape))
            if other is None:
                continue
            return [
                case.finding(
                    f"The target of {loss.op} is noise that is not in the model's input: it was drawn twice",
                    "Draw the noise once: compare the output with the noise that is added to the input.",
                    step=trace.step,
                    at=drawn,
                    evidence={
                        "target_drawn_at": str(drawn.source or ""),
                        "input_noise_drawn_at": str(other.source or ""),
                        "loss_line": str(loss.source or ""),
                        "shape": list(target.shape),
                    },
                    confidence=0.93,
                )
            ]
    return []


def _centred(drawn: OpRecord) -> bool:
    """Zero on average, and of one's own spread: not around a value that is to be learnt."""
    if not drawn.outputs or (drawn.op == "normal" and drawn.inputs):
        return False
    stats = drawn.outputs[0].stats
    return abs(stats.get("mean", 1.0)) < 0.35 * stats.get("absmean", 0.0)


def _depends_on(trace: Trace, fact: TensorFact) -> set[int]:
    """Ops whose values these were computed from; `randn_like` depends on a shape alone."""
    found: set[int] = set()
    waiting = [fact]
    while waiting:
        op = producer(trace, waiting.pop())
        if op is not None and op.index not in found:
            found.add(op.index)
            if op.op not in _NOISE:
                waiting += op.inputs
    return found


def _mixed_in(trace: Trace, before: set[int], size: int) -> OpRecord | None:
    """Noise of so many values that is added to something, scaled or not, on the way to a model's output."""
    for index in sorted(before):
        op = trace.ops[index]
        if op.op not in _MIXING or len(op.inputs) < 2:
            continue
        for fact in op.inputs[:2]:
            drawn = _scaled_noise(trace, fact)
            if drawn is not None and prod(drawn.outputs[0].shape) == size:
                return drawn
    return None


def _scaled_noise(trace: Trace, fact: TensorFact) -> OpRecord | None:
    op = made_by(trace, fact)
    for _ in range(4):
        if op is None or not op.outputs:
            return None
        if op.op in _NOISE:
            return op
        if op.op not in _SCALING:
            return None
        within = [made for given in op.inputs if (made := made_by(trace, given)) is not None]
        op = next((made for made in within if made.op in _NOISE), None) or next(
            (made for made in within if made.op in _SCALING), None
        )
    return None


_BY_POSITION = ops(Trait.EACH_POSITION | Trait.WITHIN_POSITION)
_RECURRENT = ops(Trait.RECURRENT)


@rule("sees-its-target", severity="error", phase="forward")
def sees_its_target(case: Case) -> list[Finding]:
    """In every batch, the targets are the model's own inputs shifted by one, and every layer that mixes positions
    lets each position see those after it: attention without a mask, or a bidirectional recurrent layer. The answer at
    a position is then the input of the next one, which the model sees: the loss falls below what is predictable, and
    generation, where nothing comes after, fails.

    One masked or causal layer, or one forward recurrent layer, is enough for silence (an encoder may see everything
    that its decoder must not), and so is any mask: what it hides is not examined.
    """
    shifted = case.facts.batches.shifted
    trace = case.first
    if trace is None or shifted.looked_at < 4 or shifted.same < shifted.looked_at:
        return []
    length = shifted.length
    given = {
        fact.id
        for call in trace.calls
        if call.parent is None and call.module == shifted.root and call.grad_enabled
        for fact in call.inputs
        if list(fact.shape) == shifted.shape
    }
    if not given:
        return []
    spread = _spread(trace, given, (length, length - 1))
    loss = next((op for op in trace.ops[::-1] if op.op in ("cross_entropy", "nll_loss", *_DISTANCES)), None)
    if spread.closed or not spread.open or loss is None or not loss.inputs or loss.inputs[0].id not in spread.reached:
        return []
    first = spread.open[0]
    both = first.op in _RECURRENT
    return [
        case.finding(
            (
                f"{first.op} in {first.module or first.site} "
                + ("is bidirectional" if both else "has no mask")
                + ": each position sees the next input, which is its target"
            ),
            "Take bidirectional=True away."
            if both
            else "Pass a causal mask (is_causal=True, or nn.Transformer.generate_square_subsequent_mask(length)).",
            at=first,
            evidence={
                "batches": shifted.looked_at,
                "targets_are_inputs_shifted": shifted.same,
                "length": length,
                "layers": [op.site for op in spread.open[:8]],
            },
            confidence=0.92,
        )
    ]


@dataclass(slots=True)
class _Spread:
    """Where values by position go: layers that let positions see all others, such that do not, and the tensors reached."""

    reached: set[int]
    open: list[OpRecord] = field(default_factory=list)
    closed: list[OpRecord] = field(default_factory=list)


def _spread(trace: Trace, given: set[int], lengths: tuple[int, ...]) -> _Spread:
    """Follows tensors forward through layers that are known; others end the way."""
    found = _Spread(set(given))
    for op in trace.ops:
        taken = [fact for fact in op.inputs if fact.id in found.reached]
        if not taken:
            continue
        if op.op in _RECURRENT and len(op.outputs) >= 2:
            both = op.outputs[0].shape[-1] == 2 * op.outputs[1].shape[-1]
            (found.open if both else found.closed).append(op)
        elif op.op in ("scaled_dot_product_attention", "multi_head_attention_forward"):
            if not all(fact.id in found.reached for fact in op.inputs[:3]):
                found.closed.append(op)  # of one sequence to another
            else:
                (found.closed if _masked(op) else found.open).append(op)
        elif op.op == "softmax" and op.outputs and op.outputs[0].shape[-2:] in [(n, n) for n in lengths]:
            (found.closed if _hides(trace, op) else found.open).append(op)
        elif op.op not in _BY_POSITION and op.op not in PASSING:
            continue
        found.reached |= {fact.id for fact in op.outputs}
    return found


def _hides(trace: Trace, op: OpRecord) -> bool:
    """Weights of exactly 0, before or right after: what has been masked."""
    later = [user for user in consumers(trace, op.outputs[0]) if not user.op.startswith("dropout")]
    return any(fact.stats.get("zero", 0) > 0 for made in (op, *later) for fact in made.outputs[:1])


def _masked(op: OpRecord) -> bool:
    if op.arguments.get("is_causal") is True:
        return True
    if op.op == "scaled_dot_product_attention":
        return len(op.inputs) > 3
    return "attn_mask" not in op.arguments or op.arguments["attn_mask"] is not None
