"""Padding that is taken for data: in attention, and in the loss."""

from __future__ import annotations

from tensonde.diagnose.analysis.flow import PASSING, made_by, producer
from tensonde.diagnose.analysis.products import averaged
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, TensorFact, Trace

_NOT = ops(Trait.NOT)
_SHAPES = ops(Trait.PASSES | Trait.REPEATS | Trait.CASTS_TO_WHOLE)
HIDDEN = -1e3
"""What a mask fills scores with, at most: softmax makes 0 of it."""
SHARE = 0.3
"""Of the targets must be padding, in most batches."""


@rule("padding-mask-inverted", severity="error", phase="forward")
def inverted(case: Case) -> list[Finding]:
    """Attention hides the real tokens and keeps the padding: the mask is inverted.

    A mask that fills scores with -inf (`masked_fill`, and `key_padding_mask` of torch's layers) is True where a
    position is hidden; the boolean mask of scaled_dot_product_attention is True where a position is visible. To
    decide, the first step is used: the mask is traced back, through negations, to the comparison of the token ids
    with the padding id. Only ids that go into an embedding are tokens, and if the embedding has a `padding_idx`, that
    is the id.
    """
    trace = case.first
    if trace is None:
        return []
    tokens = {
        op.inputs[0].id: op.arguments.get("padding_idx") for op in trace.ops if op.op == "embedding" and op.inputs
    }
    for op in trace.ops:
        mask, hides = _mask(op)
        found = _compared(trace, mask, tokens) if mask is not None else None
        if found is None:
            continue
        made, at_padding, pad = found
        if at_padding == hides:
            continue
        return [
            case.finding(
                f"Attention in {op.module or 'the program'} hides every real token and keeps the padding: the mask is inverted",
                (
                    f"Make the mask True for padding (tokens == {pad}): where it is True, attention sees nothing."
                    if hides
                    else f"Make the mask True for real tokens (tokens != {pad}): where it is True, attention looks."
                ),
                site=f"{op.module}:out" if op.module else f"{op.site}:out",
                op=op.op,
                source=made.source,
                evidence={"mask": made.op, "padding": pad, "used_by": op.op, "true_hides": hides},
                confidence=0.93,
            )
        ]
    return []


def _mask(op: OpRecord) -> tuple[TensorFact | None, bool]:
    """The mask that an op of attention is given, and whether True hides."""
    if op.op in ops(Trait.FILLS) and len(op.inputs) >= 2:
        value = op.arguments.get("value", op.arguments.get("2"))
        low = value == "-Infinity" or (isinstance(value, int | float) and value <= HIDDEN)
        return (op.inputs[1], True) if low else (None, True)
    if op.op == "scaled_dot_product_attention" and len(op.inputs) >= 4 and op.inputs[3].dtype == "bool":
        return op.inputs[3], False
    return None, True


def _compared(trace: Trace, fact: TensorFact, tokens: dict[int, object]) -> tuple[OpRecord, bool, int | float] | None:
    """The comparison of tokens with an id that a mask comes from, whether the mask is True at that id, and the id."""
    flipped = False
    for _ in range(16):
        op = producer(trace, fact)
        if op is None or not op.inputs:
            return None
        if op.op in _NOT:
            flipped = not flipped
        elif op.op in ("eq", "ne", "gt") and len(op.inputs) == 1:
            value = op.arguments.get("other", op.arguments.get("1"))
            if not isinstance(value, int | float) or (op.op == "gt" and value != 0):
                return None
            if op.inputs[0].id in tokens:
                known = tokens[op.inputs[0].id]
                return None if known is not None and known != value else (op, (op.op == "eq") != flipped, value)
            if value != 0:
                return None
            flipped ^= op.op == "eq"
        elif op.op not in _SHAPES:
            return None
        fact = op.inputs[0]
    return None


@rule("padding-in-loss", severity="error", phase="forward")
def counted(case: Case) -> list[Finding]:
    """Padding is a large part of what the loss counts. The most frequent target of most batches is the id that an
    embedding with as many tokens as there are classes knows as padding, or that ends the rows of the model's input
    and appears nowhere else in them; and cross_entropy does not ignore it, or a hand-written loss takes the mean over
    all targets. The model learns to predict padding, and the loss falls for that alone.
    """
    trace = case.first
    tables = {
        (fact.settings.get("num_embeddings"), fact.settings["padding_idx"])
        for fact in case.facts.modules.values()
        if fact.type == "Embedding" and isinstance(fact.settings.get("padding_idx"), int)
    }
    tables |= {
        (seen.size, seen.other)
        for seen in case.facts.tokens
        if seen.padding_idx < 0 and seen.other is not None and seen.other >= 0 and seen.looks >= 5 and 2 * seen.padded >= seen.rows and len(seen.lengths) >= 3
    }  # fmt: skip
    for op in trace.ops if trace is not None else ():
        if (
            op.op not in (*_LOSSES, "gather")
            or len(op.inputs) < 2
            or len(op.inputs[0].shape) < 2
            or not op.inputs[0].requires_grad
        ):
            continue
        own = op.op == "gather"
        if own and not (trace is not None and _own_loss(trace, op)):
            continue
        for size, pad in sorted(tables, key=str):
            share = _share(case, op, pad)
            classes = op.inputs[0].shape[-1 if own else 1]
            if size != classes or share is None or (not own and op.arguments.get("ignore_index", -100) == pad):
                continue
            made = case.module(op.module)
            return [
                case.finding(
                    f"{share:.0%} of the targets of {'the loss' if own else op.op} are padding ({pad}), and all of it counts in the loss",
                    f"Exclude them: (each * (targets != {pad})).sum() / (targets != {pad}).sum()."
                    if own
                    else f"Pass ignore_index={pad} to {op.op}.",
                    site=f"{op.site}:out",
                    op=op.op,
                    source=made.made if made.library else op.source,
                    evidence={"padding": pad, "share": share, "batches": len(case.facts.batches.labels)},
                    confidence=0.9,
                )
            ]
    return []


_LOSSES = ops(Trait.CLASS_LOSS)


def _share(case: Case, op: OpRecord, pad: int) -> float | None:
    """Of the targets that are padding, in most batches; None where it is not large."""
    rows = case.facts.batches.labels
    if op.op in _LOSSES and len(rows) >= 5:
        padded = [row for row in rows if row[2] == pad and row[1] >= SHARE * row[0]]
        return sum(row[1] for row in padded) / sum(row[0] for row in padded) if len(padded) >= 0.8 * len(rows) else None
    stats = op.inputs[1].stats  # one's own loss, or targets of several dimensions: of the first step
    share = stats.get("zero", 0.0) / stats["count"] if pad == 0 and stats.get("count") else 0.0
    return share if share >= SHARE else None


def _own_loss(trace: Trace, op: OpRecord) -> bool:
    """Log-probabilities of the targets go into one mean over all of them."""
    made = made_by(trace, op.inputs[0], PASSING | {"log", "log_", "clamp", "add"})
    return (
        made is not None and made.op in ("log_softmax", "softmax") and averaged(trace, op.outputs[0], through=PASSING)
    )
