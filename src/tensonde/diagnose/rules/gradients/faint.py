"""Signals too faint, or too strong, to learn from: weights that change their size from layer to layer, inputs that are scaled down twice."""

from __future__ import annotations

from math import hypot, log

from tensonde.diagnose.analysis.depth import layers_and_squashing, stuck
from tensonde.diagnose.analysis.flow import ancestors, made_by
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import some
from tensonde.model.facts import DivisionFact
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops
from tensonde.model.site import SourceLine
from tensonde.model.trace import OpRecord, TensorFact, Trace

_NORMS = ops(Trait.NORM)
SHRINKS = 0.3
"""A layer of the usual initialisation passes on more than half of the size of what it is given."""
LAYERS = 3
LEFT = 1e-3
"""What the last layer gives, as a share of what the first is given."""
TINY = 0.02
GROWS, HIGH, ORDINARY = 3.0, 10.0, 10.0
"""A layer that gives so many times what it is given; a first loss so many times that of no knowledge; inputs below this size."""


@rule("weights-begin-out-of-scale", severity="error", phase="forward")
def out_of_scale(case: Case) -> list[Finding]:
    """At the first step, the output of each layer is a small part of its input, until the outputs hardly depend on
    the inputs; gradients shrink likewise on their way back, and the loss does not change through the whole training.
    The cause is weights drawn with one small deviation for all layers (`normal_(std=0.01)`): the deviation has to
    depend on the number of inputs.

    With a normalization on the way, the size of weights does no harm. If the loss falls, it did none either.

    Or the output of each layer is several times its input, as with weights drawn with a deviation of 1 (`normal_()`),
    and the first loss shows it: the cross-entropy is many times log(classes), although the inputs are of ordinary
    size.
    """
    return _too_small(case) or _too_large(case)


def _too_large(case: Case) -> list[Finding]:
    trace = case.first
    loss = trace.ops[trace.loss] if trace is not None and trace.loss is not None else None
    if trace is None or loss is None or loss.op != "cross_entropy" or trace.step or _normalised(trace):
        return []
    classes = loss.inputs[0].shape[1] if len(loss.inputs[0].shape) >= 2 else 0
    first_loss = loss.outputs[0].stats.get("absmax", 0.0) if loss.outputs else 0.0
    if classes < 2 or first_loss < HIGH * log(classes):
        return []
    layers, _ = layers_and_squashing(trace)
    gains = [(name, _size(op.outputs[0]) / size) for op, name in layers if (size := _size(op.inputs[0])) > 0]
    large = [(name, gain) for name, gain in gains if gain > GROWS]
    known = [case.facts.parameters[name] for name, _ in large if name in case.facts.parameters]
    chosen = [fact for fact in known if fact.filled is not None and fact.filled != fact.made and not fact.loaded]
    if len(large) < 2 or len(chosen) < 2 or not layers or not 0 < _size(layers[0][0].inputs[0]) < ORDINARY:
        return []
    return [
        case.finding(
            f"{some(name for name, _ in large)} start too large: each outputs {min(g for _, g in large):.2g} times its input or more, and the first loss is {first_loss:.3g} instead of about {log(classes):.2g}",
            "Initialize according to the number of inputs: kaiming_normal_ (with ReLU), xavier_uniform_, or the layers' own default.",
            severity="warning",
            site=f"{chosen[0].owner}:out",
            source=chosen[0].filled,
            evidence={
                "size_of_output_by_input": {name: float(f"{gain:.2g}") for name, gain in gains[:12]},
                "first_loss": first_loss,
                "initialised_with": chosen[0].recipe,
            },
            confidence=0.85,
        )
    ]


def _too_small(case: Case) -> list[Finding]:
    trace = case.first
    if trace is None or trace.loss is None or not stuck([value for _, value in case.series("loss")]):
        return []
    layers, _ = layers_and_squashing(trace)
    # A layer that gives exactly 0 begins at 0 on purpose (LoRA, a residual branch): it is not small, and others carry the signal.
    layers = [(op, name) for op, name in layers if _size(op.outputs[0]) > 0]
    if len(layers) < LAYERS or _normalised(trace):
        return []
    gains = [(name, _size(op.outputs[0]) / size) for op, name in layers if (size := _size(op.inputs[0])) > 0]
    small = [(name, gain) for name, gain in gains if gain < SHRINKS]
    first, last = layers[0][0].inputs[0], layers[-1][0].outputs[0]
    if len(small) < LAYERS or 2 * len(small) < len(layers) or _size(first) < TINY or _size(last) > LEFT * _size(first):
        return []
    known = case.facts.parameters
    facts = [known[name] for name, _ in small if name in known]
    if not facts or any(fact.loaded for fact in facts):
        return []
    return [
        case.finding(
            (
                f"The signal fades from layer to layer: {len(small)} of {len(layers)} layers ({some(n for n, _ in small)}) start too small, and the loss does not fall"
            ),
            "Initialize according to the number of inputs: kaiming_normal_ (with ReLU), xavier_uniform_, or the layers' own default.",
            site=f"{facts[0].owner}:out",
            source=facts[0].filled or facts[0].made,
            evidence={
                "size_of_output_by_input": {name: float(f"{gain:.2g}") for name, gain in gains[:12]},
                "input": float(f"{_size(first):.3g}"),
                "output": float(f"{_size(last):.3g}"),
                "initialised_with": facts[0].recipe,
            },
            confidence=0.9,
        )
    ]


def _normalised(trace: Trace) -> bool:
    assert trace.loss is not None
    on_the_way = ancestors(trace, trace.ops[trace.loss])
    return any(op.op in _NORMS and op.index in on_the_way for op in trace.ops)


def _size(fact: TensorFact) -> float:
    """Root of the mean square."""
    return hypot(fact.stats.get("mean", 0.0), fact.stats.get("std", 0.0))


@rule("inputs-scaled-away", severity="error", phase="data")
def scaled_away(case: Case) -> list[Finding]:
    """The first layer gets inputs that are hundreds of times smaller than layers are made for, in every batch
    examined, and no normalization follows. The program divides by a constant that explains it: the largest value is
    just 1 divided by that number (1/255), so the data had been scaled to 1 before. A less exact match counts if the
    loss stays where it was. The model may divide its inputs itself.
    """
    trace = case.first
    rows = [row for row in case.facts.batches.inputs if len(row.shape) >= 2]
    if trace is None or not rows or any(op.op in _NORMS for op in trace.ops):
        return []
    still = stuck([value for _, value in case.series("loss")])
    most = max(row.absmax for row in rows)
    layer = _first_layer(trace, most)
    if layer is None:
        return []
    inside = made_by(trace, layer.inputs[0])
    if inside is not None:
        most = layer.inputs[0].stats.get("absmax", 1.0)
    scalings = [d for d in case.facts.divisions if (0.3 if still else 0.97) <= most * d.by <= 1.001]
    if not 0 < most < TINY or not scalings:
        return []
    by, weight = scalings[0].by, next(fact for fact in layer.inputs[1:] if fact.name and len(fact.shape) >= 2)
    return [
        case.finding(
            f"Inputs of {layer.module or rows[0].root} reach {most:.2g}, which is 1/{by:g}: they are divided by {by:g} twice",
            f"Divide by {by:g} in one place only (ToTensor and similar transforms also do it).",
            severity="error" if still else "warning",
            site=f"{layer.module or rows[0].root}:in",
            source=inside.source if inside is not None else _second(case, scalings),
            evidence={
                "input_absmax": most,
                "weight_absmax": weight.stats.get("absmax"),
                "divided_at": [str(d.line) for d in scalings[:8]],
                "batches": len(rows),
                "loss_falls": not still,
            },
            confidence=0.9 if still else 0.8,
        )
    ]


def _first_layer(trace: Trace, most: float) -> OpRecord | None:
    """The layer that takes the inputs as they are, or divided."""
    for op in trace.ops:
        if op.op in ops(Trait.LAYER) and op.inputs and not op.inputs[0].requires_grad:
            given = op.inputs[0]
            weighed = any(fact.name and len(fact.shape) >= 2 for fact in op.inputs[1:])
            maker = made_by(trace, given)
            if maker is not None and maker.op == "div" and maker.inputs and made_by(trace, maker.inputs[0]) is None:
                maker = None
            if weighed and maker is None and given.stats.get("absmax", 1.0) <= 1.001 * most:
                return op
    return None


def _second(case: Case, scalings: list[DivisionFact]) -> SourceLine | None:
    """Where the second scaling is: in what the model is called with, else the last one that is not in a data set."""
    called = case.facts.batches.call_line.code if case.facts.batches.call_line else ""
    near = [d for d in scalings if d.function and f"{d.function}(" in called]
    outside = [d for d in scalings if d.function != "__getitem__"]
    return (near or outside or scalings)[-1].line
