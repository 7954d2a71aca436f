"""What recurrent layers give, read across samples."""

from __future__ import annotations

from math import prod

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, Trace

_RECURRENT = ops(Trait.RECURRENT)
_ELEMENTWISE = ops(Trait.ELEMENTWISE)


@rule("state-viewed-across-samples", severity="error", phase="forward")
def viewed_across(case: Case) -> list[Finding]:
    """The state of a recurrent layer is (layers x directions, batch, features), whatever batch_first is, and its
    output is (time, batch, features) without batch_first. view(batch, ...) of these moves no data: each row then
    holds values of several samples, of one layer or direction. So a sample is classified by the values of others.

    Views that keep the batch as a separate dimension, or that merge it with the dimension before it, are right, and
    so is one after a transpose. If the first dimension is as long as the batch, the shapes cannot decide: silent.
    """
    for trace, op in case.trained_ops():
        if op.op not in ("view", "reshape") or not op.inputs or not op.outputs:
            continue
        before, after = op.inputs[0].shape, op.outputs[0].shape
        layer = _batch_second(trace, op)
        if layer is None or len(before) < 3:
            continue
        batch, features = before[-2], before[-1]
        ahead = prod(before[:-2])
        if batch < 2 or ahead < 2 or ahead == batch or not after or after[0] != batch or _keeps(after, batch, features):
            continue
        return [
            case.finding(
                (
                    f"{op.op} turns {list(before)} of {layer.op} ({batch} samples, in the second dimension) into {list(after)}: "
                    "each row mixes samples"
                ),
                (
                    "Bring the batch to the front first: h.transpose(0, 1).reshape(batch, -1), or torch.cat((h[-2], h[-1]), 1)."
                ),
                step=trace.step,
                at=op,
                evidence={
                    "from": list(before),
                    "to": list(after),
                    "batch": batch,
                    "layer": layer.site,
                    "layer_line": str(layer.source or ""),
                },
                confidence=0.94,
            )
        ]
    return []


def _keeps(shape: tuple[int, ...], batch: int, features: int) -> bool:
    """The batch is still a dimension of its own, each sample's features in one piece."""
    stride = 1
    for size in reversed(shape):
        if size == batch and stride == features:
            return True
        stride *= size
    return False


def _batch_second(trace: Trace, op: OpRecord) -> OpRecord | None:
    """The recurrent layer that the input of an op came from, with the batch in the dimension before the last."""
    fact = op.inputs[0]
    for _ in range(16):
        if fact.producer is None or fact.producer >= len(trace.ops):
            return None
        made = trace.ops[fact.producer]
        if made.op in _RECURRENT:
            at = next((k for k, out in enumerate(made.outputs) if out.id == fact.id), 0)
            return made if _second(made, at) else None
        if not made.inputs or not made.outputs:
            return None
        given = made.inputs[0]
        if made.op in _ELEMENTWISE:
            alike = given.shape == fact.shape
        elif made.op == "getitem":  # of layers or directions: slices, or some of them
            alike = len(made.inputs) == 1 and len(fact.shape) >= 3 and given.shape[-2:] == fact.shape[-2:]
        elif made.op in ("view", "reshape"):  # layers apart from directions
            alike = len(fact.shape) >= 3 and len(given.shape) >= 3 and given.shape[-2:] == fact.shape[-2:]
        else:
            return None
        if not alike:
            return None
        fact = given
    return None


def _second(layer: OpRecord, at: int) -> bool:
    """Whether this output has the batch second: a state does; the sequence does where it agrees with the state."""
    if len(layer.outputs) < 2 or len(layer.outputs[1].shape) != 3:
        return False
    batch, out = layer.outputs[1].shape[1], layer.outputs[at].shape
    if at > 0:
        return len(out) == 3 and out[1] == batch
    return len(out) == 3 and out[1] == batch and out[0] != batch
