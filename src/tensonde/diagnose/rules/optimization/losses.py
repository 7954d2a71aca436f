"""What reaches the loss: probabilities where logits belong, the wrong dimension, shapes that broadcast."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.analysis.flow import PASSING, consumers, made_by, producer
from tensonde.diagnose.analysis.products import compared, multiplied
from tensonde.diagnose.analysis.scores import activation, own_softmax, takes_scores
from tensonde.diagnose.analysis.single import one_value
from tensonde.diagnose.analysis.weighing import summed_elsewhere
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import chosen
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, TensorFact, Trace

_SOFTMAX = ops(Trait.SOFTMAX)
_ELEMENTWISE_LOSSES = ops(Trait.ELEMENTWISE_LOSS)


def _losses(trace: Trace | None, *names: str) -> Iterator[OpRecord]:
    for op in trace.ops if trace is not None else ():
        if op.op in names and len(op.inputs) >= 2:
            yield op


def _trained(case: Case, *names: str) -> Iterator[tuple[Trace, OpRecord]]:
    """Losses that are trained on, of the first step and of later stages."""
    for trace, op in case.trained_ops():
        if op.op in names and len(op.inputs) >= 2:
            yield trace, op


def _at(op: OpRecord) -> str:
    return op.site + ":out"


@rule("activation-before-logit-loss", severity="error", phase="forward")
def squashed(case: Case) -> list[Finding]:
    """A raw score went through an activation before a loss that applies (log-)softmax or sigmoid itself: the
    framework's loss (cross_entropy), or a hand-written one (log_softmax, then selecting the targets' classes).

    With softmax or sigmoid, the loss still falls, but its gradient is small and cannot reach zero. After ReLU, no
    class can have a score below 0, and classes with score 0 get no gradient. log_softmax twice changes nothing and is
    not reported.
    """
    for trace, loss in case.trained_ops():
        if not loss.inputs or not loss.inputs[0].requires_grad:
            continue
        given = made_by(trace, loss.inputs[0])
        inner = activation(trace, given) if given is not None else ""
        if given is None or not inner or not takes_scores(trace, loss, inner):
            continue
        outer = "sigmoid" if "sigmoid" in loss.op or "with_logits" in loss.op else "softmax"
        rectified = inner == "relu"
        does = f"applies {outer} itself" if loss.op != outer else "squashes the scores again"
        return [
            case.finding(
                f"ReLU on the logits of {loss.op}" if rectified else f"{inner} before {loss.op}, which {does}",
                "Take the activation off the last layer."
                if rectified
                else f"Give {loss.op} the raw logits: take {inner} out of the model's output (keep it for predictions only).",
                severity="warning" if rectified else "error",
                step=trace.step,
                site=_at(given),
                op=given.op,
                source=chosen(case, given),
                evidence={
                    "loss": loss.op,
                    "loss_line": str(loss.source),
                    "input.min": loss.inputs[0].stats.get("min"),
                    "input.max": loss.inputs[0].stats.get("max"),
                },
                confidence=0.85 if rectified else 0.95,
            )
        ]
    return []


@rule("log-probabilities-expected", severity="error", phase="forward")
def not_log_probabilities(case: Case) -> list[Finding]:
    """nll_loss, ctc_loss or kl_div gets values that are not log-probabilities, which are never above 0: softmax
    without log, or raw logits; for kl_div, any values of which none is below 0.
    """
    found = []
    for trace, loss in _trained(case, "nll_loss", "ctc_loss", "kl_div"):
        given = loss.inputs[0]
        op = made_by(trace, given)
        highest = given.stats.get("max", 0.0)
        bare = op is not None and op.op in (
            "softmax",
            "sigmoid",
            "Softmax",
            "linear",
            "addmm",
            "matmul",
            "conv2d",
            "relu",
        )
        bare |= loss.op == "kl_div" and given.stats.get("min", -1.0) >= 0
        if highest <= 1e-3 or not bare or op is None:
            continue
        found.append(
            case.finding(
                f"{loss.op} expects log-probabilities and gets the output of {op.op} (up to {highest:.3g})",
                "Use log_softmax before it"
                + (", or cross_entropy on the raw logits." if loss.op == "nll_loss" else "."),
                step=trace.step,
                site=_at(op),
                op=op.op,
                source=loss.source if op.op not in ("softmax", "sigmoid", "Softmax") else op.source,
                evidence={"input.max": highest, "made_by": op.op, "loss_line": str(loss.source)},
                confidence=0.93,
            )
        )
    return found[:1]


@rule("ctc-targets-misfit", severity="error", phase="forward")
def ctc_targets(case: Case) -> list[Finding]:
    """The targets of ctc_loss contain its own blank: a class has the index that stands for "nothing here", so it can
    be neither learned nor decoded. Reported if the blank is the lowest or the highest index and the targets are
    concatenated into one row; in padded targets it may be the padding.

    Or some targets are longer than any of the inputs, so they cannot be aligned: their loss is infinite, or 0 with
    `zero_infinity`, which hides it. The input lengths are those that reach the loss, after all strides.
    """
    return _blank_among_targets(case) or _inputs_too_short(case)


def _blank_among_targets(case: Case) -> list[Finding]:
    for trace, loss in _trained(case, "ctc_loss"):
        blank, targets = loss.arguments.get("blank", 0), loss.inputs[1]
        if not isinstance(blank, int) or len(targets.shape) != 1:
            continue
        low, high = targets.stats.get("min", -1.0), targets.stats.get("max", -1.0)
        if (blank == 0 and low == 0) or (blank == loss.inputs[0].shape[-1] - 1 and high == blank):
            return [
                case.finding(
                    f"The targets of ctc_loss hold {blank}, which is its blank",
                    "Keep one index free for the blank: number the classes from 1 on (blank=0), or give the model one more class and use the last index as blank.",
                    step=trace.step,
                    at=loss,
                    evidence={
                        "blank": blank,
                        "targets.min": low,
                        "targets.max": high,
                        "classes": loss.inputs[0].shape[-1],
                    },
                    confidence=0.95,
                )
            ]
    return []


def _inputs_too_short(case: Case) -> list[Finding]:
    for trace, loss in _trained(case, "ctc_loss"):
        if len(loss.inputs) < 4:
            continue
        longest, needed = loss.inputs[2].stats.get("max"), loss.inputs[3].stats.get("max")
        if longest is None or needed is None or longest >= needed:
            continue
        return [
            case.finding(
                f"ctc_loss has inputs of at most {longest:.0f} frames and targets of up to {needed:.0f}, which cannot be aligned",
                "Give it the lengths of the log-probabilities (frames after the model's strides), and use less stride if they are too short.",
                step=trace.step,
                at=loss,
                evidence={
                    "input_lengths.max": longest,
                    "target_lengths.max": needed,
                    "frames": loss.inputs[0].shape[0],
                },
                confidence=0.93,
            )
        ]
    return []


@rule("softmax-over-wrong-dimension", severity="error", phase="forward")
def wrong_dimension(case: Case) -> list[Finding]:
    """softmax runs over a dimension that is not the one used as classes, or as weights, afterwards.

    Before a classification loss, the classes are dimension 1 (the last one of a matrix): softmax over another
    dimension makes the samples of a batch compete. As attention weights (`weights @ values`), the product sums over
    the last dimension, so the softmax must run over it, too. Assignments to clusters, which are summed over their
    members, are not reported.
    """
    trace = case.first
    if trace is None:
        return []
    found = []
    for op in trace.ops:
        own = own_softmax(trace, op)
        if (op.op not in _SOFTMAX and own is None) or not op.outputs or not op.inputs or len(op.outputs[0].shape) < 2:
            continue
        out = op.outputs[0]
        dims = len(out.shape)
        dim = own if own is not None else op.arguments.get("dim")
        if dim is None:
            dim = 0 if dims in (0, 1, 3) else 1
        if not isinstance(dim, int):
            continue
        dim %= dims
        why = _mismatch(trace, op, out, dim)
        if why:
            found.append(
                case.finding(
                    f"{'softmax' if own is not None else op.op} over dimension {dim} of {list(out.shape)}{': the batch' if dim == 0 else ''}; {why}",
                    f"Take it over dimension {dims - 1 if 'sums' in why or dims == 2 else 1}.",
                    at=op,
                    evidence={"dim": dim, "shape": list(out.shape), "why": why},
                    confidence=0.93,
                )
            )
    return found[:3]


def _mismatch(trace: Trace, op: OpRecord, out: TensorFact, dim: int) -> str:
    """Why this dimension cannot be meant, "" if it can."""
    dims = len(out.shape)
    if why := summed_elsewhere(trace, op, dim):
        return why
    for loss in _losses(trace, "nll_loss", "cross_entropy", "kl_div", "ctc_loss"):
        made = made_by(trace, loss.inputs[0], PASSING | {"log", "log_", "add", "clamp", "clamp_min"})
        if made is not op or (loss.op == "kl_div" and dims != 2):
            continue
        shape = loss.inputs[0].shape
        if len(shape) < 2:
            continue
        if loss.op == "ctc_loss":
            if out.shape[dim] != shape[-1]:
                return "the classes of ctc_loss are its last one"
            continue
        same = shape == out.shape
        if (same and dim != 1) or (not same and out.shape[dim] != shape[1]):
            return f"the classes of {loss.op} are another one"
    square = out.shape[0] == out.shape[-1]  # of all pairs: compared in both directions
    if dims == 2 and dim == 0 and min(out.shape) > 1 and not square and _feeds_product_with_targets(trace, op, out):
        return "the classes are dimension 1"
    return ""


def _feeds_product_with_targets(trace: Trace, op: OpRecord, out: TensorFact) -> bool:
    """An own cross-entropy: (log-)probabilities gathered at, or multiplied with, targets that need no gradient."""
    frontier, tensors = [out], {out.id}
    for _ in range(3):
        following = []
        for fact in frontier:
            for user in consumers(trace, fact)[:8]:
                others = [g for g in user.inputs if g.id not in tensors]
                if user.op == "gather" and user.arguments.get("dim") in (1, -1):
                    return True
                if (
                    user.op == "mul"
                    and others
                    and not others[0].requires_grad
                    and others[0].shape == out.shape
                    and others[0].stats.get("max") == 1.0
                ):
                    return True
                if user.op in ("log", "neg", "add", "clamp") and user.outputs:
                    following.append(user.outputs[0])
                    tensors.add(user.outputs[0].id)
        frontier = following
    return False


@rule("normalised-over-one-value", severity="error", phase="forward", explains=("input-without-influence",))
def over_one_value(case: Case) -> list[Finding]:
    """softmax, cross_entropy or a normalization runs over a single value: softmax of one number is 1 and (x - mean) /
    std of it is 0 whatever comes in, so nothing before it gets a gradient. The size alone shows it.
    """
    return _single_class(case) or one_value(case)


def _single_class(case: Case) -> list[Finding]:
    found = []
    for trace, op in case.trained_ops():
        if (
            op.op == "cross_entropy"
            and len(op.inputs) >= 2
            and len(op.inputs[0].shape) >= 2
            and op.inputs[0].shape[1] == 1
        ):
            size = "cross_entropy over 1 class"
        elif (
            op.op in _SOFTMAX
            and op.outputs
            and op.inputs
            and op.inputs[0].requires_grad
            and isinstance(dim := op.arguments.get("dim"), int)
        ):
            shape = op.outputs[0].shape
            if not -len(shape) <= dim < len(shape) or shape[dim] != 1 or len(shape) != 2:
                continue
            size = f"{op.op} over a dimension of size 1"
        else:
            continue
        found.append(
            case.finding(
                f"{size}: constant, without gradient",
                (
                    "Use binary_cross_entropy_with_logits for one output, or give the last layer one output for "
                    "each class."
                ),
                step=trace.step,
                at=op,
                evidence={"shape": list(op.inputs[0].shape)},
                confidence=0.93,
            )
        )
    return found[:1]


@rule("loss-broadcasts", severity="error", phase="forward")
def broadcasting(case: Case) -> list[Finding]:
    """Predictions and targets of different shapes, (N, 1) and (N,), are broadcast to (N, N): every prediction is
    compared with every target, and the best that can be learned is the mean. Detected in torch's losses, in a
    hand-written difference, and in a product (log-probabilities with advantages, losses with weights) that is then
    averaged as a whole: the mean of all products is the product of the means.
    """
    for trace, op in case.trained_ops():
        if len(op.inputs) < 2:
            continue
        a, b = op.inputs[0], op.inputs[1]
        if a.shape == b.shape or not a.shape or not b.shape:
            continue
        if op.op in _ELEMENTWISE_LOSSES:
            size = _broadcast(a.shape, b.shape)
            if size is None or size <= max(_numel(a), _numel(b)):
                continue
        elif op.op not in ("sub", "rsub", "eq", "mul") or not _crossed(trace, op, a, b):
            continue
        product = op.op == "mul"
        return [
            case.finding(
                (
                    f"{op.op} broadcasts {list(a.shape)} against {list(b.shape)}: every "
                    + (
                        "sample is multiplied with every other"
                        if product
                        else "prediction is compared with every target"
                    )
                ),
                "Give both the same shape: squeeze(-1) the "
                + ("(N, 1) or unsqueeze(-1) the (N,)." if product else "predictions or unsqueeze(-1) the targets."),
                step=trace.step,
                at=op,
                evidence={"shapes": [list(a.shape), list(b.shape)]},
                confidence=0.95 if op.op in _ELEMENTWISE_LOSSES else 0.88,
            )
        ]
    return []


def _crossed(trace: Trace, op: OpRecord, a: TensorFact, b: TensorFact) -> bool:
    """(N, 1) with (N,) outside of any product of one's own making: predictions against targets, that go on to the
    loss.
    """
    if sorted((len(a.shape), len(b.shape))) != [1, 2] or a.requires_grad == b.requires_grad:
        return False
    column, row = (a, b) if len(a.shape) == 2 else (b, a)
    if column.shape != (row.shape[0], 1) or row.shape[0] < 2 or row.name or column.name:
        return False
    if not op.outputs or not op.outputs[0].requires_grad:
        return False
    if op.op == "mul":
        return not _asked_for(trace, column) and multiplied(trace, op, column, row)
    return not _asked_for(trace, column) or compared(trace, op, column, row)


def _asked_for(trace: Trace, column: TensorFact) -> bool:
    """Somebody wanted a column."""
    made = producer(trace, column)
    return made is not None and made.op in ("unsqueeze", "getitem", "view", "reshape")


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> int | None:
    size = 1
    for k in range(1, max(len(a), len(b)) + 1):
        x, y = a[-k] if k <= len(a) else 1, b[-k] if k <= len(b) else 1
        if x != y and 1 not in (x, y):
            return None
        size *= max(x, y)
    return size


def _numel(fact: TensorFact) -> int:
    size = 1
    for n in fact.shape:
        size *= n
    return size
