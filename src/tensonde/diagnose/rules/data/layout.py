"""Dimensions that are mixed up without an error."""

from __future__ import annotations

from tensonde.diagnose.analysis.flow import consumers
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, modules, ops


def scrambled(before: tuple[int, ...], after: tuple[int, ...]) -> int | None:
    """The size of a dimension that a view has moved without moving its data, None if there is none.

    Reading both as C order: a dimension of the input that is still there, by its size, but with another stride,
    and that no dimension of the output continues, is read across the data of others.
    """
    old = [(size, stride) for size, stride in _strides(before) if size > 1]
    new = [(size, stride) for size, stride in _strides(after) if size > 1]
    if len(old) < 2 or len(new) < 2 or sorted(old) == sorted(new):
        return None
    sizes, kept = [size for size, _ in new], set(new)
    for size, stride in old:
        if (size, stride) in kept or size not in sizes:
            continue
        if [s for s, _ in old].count(size) > 1:
            continue  # which of them is it?
        moved = [at for s, at in new if s == size]
        if sorted(s for s, _ in old) == sorted(sizes) or (
            len(old) >= 3 and len(new) >= 3 and all((size, at) not in set(old) for at in moved)
        ):
            return size
    return None


def _strides(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    found, stride = [], 1
    for size in reversed(shape):
        found.append((size, stride))
        stride *= size
    return found[::-1]


@rule("view-instead-of-transpose", severity="error", phase="forward")
def view_for_transpose(case: Case) -> list[Finding]:
    """view or reshape returns a tensor whose dimensions have swapped: sizes are swapped, but no data is moved, so
    values of one position, channel or head end up in others. transpose or permute move the data accordingly.
    """
    trace = case.first
    found = []
    for op in trace.ops if trace is not None else ():
        if op.op not in ("view", "reshape") or not op.inputs or not op.outputs:
            continue
        before, after = op.inputs[0].shape, op.outputs[0].shape
        size = scrambled(before, after)
        if size is None:
            continue
        found.append(
            case.finding(
                f"{op.op} turns {list(before)} into {list(after)}: sizes swap places, the data do not move",
                (
                    "Use transpose or permute to swap dimensions (and view or reshape only to split or merge "
                    "neighbours)."
                ),
                at=op,
                evidence={"from": list(before), "to": list(after), "dimension": size},
                confidence=0.9,
            )
        )
    return found[:2]


_SEQUENCE = modules(Trait.SEQUENCE)


@rule("batch-and-time-exchanged", severity="error", phase="forward")
def batch_first(case: Case) -> list[Finding]:
    """A recurrent or attention layer that expects (time, batch, features) gets (batch, time, features): its first
    dimension is as long as the batch of the loss, its second is not. The layer then runs along the batch and mixes
    samples.
    """
    labels = {row[0] for row in case.facts.batches.labels}
    trained = [loader for loader in case.facts.loaders if loader.steps]
    batch = next(iter(labels)) if len(labels) == 1 else None
    if batch is None and trained and (not labels or trained[0].batch_size in labels):  # the last batch may be smaller
        batch = trained[0].batch_size
    if not batch or batch < 2:
        return []
    found = []
    for name, module in case.facts.modules.items():
        kind = module.type
        if kind not in _SEQUENCE or module.settings.get("batch_first", kind.startswith("TransformerEncoder")):
            continue
        site = case.sites.get(f"{name}:out[0]") or case.sites.get(f"{name}:out")
        if site is None or len(site.shape) != 3 or site.shape[0] != batch or site.shape[1] == batch:
            continue
        found.append(
            case.finding(
                f"{name} ({kind}) treats the batch of {batch} as time: batch_first is False",
                "Pass batch_first=True, or transpose the input to (time, batch, features).",
                site=f"{name}:out",
                source=module.made,
                evidence={"output": list(site.shape), "batch": batch, "batch_first": False},
                confidence=0.85,
            )
        )
    return found[:1]


@rule("normalised-over-batch", severity="error", phase="forward")
def normalised_over_batch(case: Case) -> list[Finding]:
    """F.normalize runs over dimension 0 of (batch, features), and the rows are then multiplied with others, as for
    cosines: each feature is divided by its norm over the batch, so a sample's values depend on the other samples, and
    no row has length 1.

    A product that sums over the batch (a correlation of features) is not reported, and neither is a weight.
    """
    trace = case.first
    sizes = {int(size) for size in case.facts.batches.sizes}
    for op in trace.ops if trace is not None else ():
        if op.op != "normalize" or not op.outputs or not op.inputs or op.inputs[0].name:
            continue
        if not op.inputs[0].requires_grad:
            continue  # data, normalised as they come
        shape = op.outputs[0].shape
        if op.arguments.get("dim") not in (0, -2) or len(shape) != 2 or shape[0] not in sizes or min(shape) < 2:
            continue
        assert trace is not None
        for user in consumers(trace, op.outputs[0]):
            if user.op in ("matmul", "mm") and user.inputs[0].id == op.outputs[0].id:
                return [
                    case.finding(
                        f"normalize over dimension 0 of {list(shape)}: over the batch, not over each sample's features",
                        "Use dim=1 (or dim=-1).",
                        at=op,
                        evidence={"dim": op.arguments.get("dim"), "shape": list(shape), "goes_into": user.op},
                        confidence=0.9,
                    )
                ]
    return []


@rule("one-row-for-all-positions", severity="error", phase="forward")
def one_row(case: Case) -> list[Finding]:
    """A table with one row per position is indexed with a length where a slice of that length is meant (`table[:,
    x.shape[1]]` for `table[:, :x.shape[1]]`), and the resulting single row is added to all positions of that very
    tensor: it says nothing about where they are.

    An index counts only if it is exactly the length of what the row is added to, and the table is a parameter or a
    buffer.
    """
    trace = case.first
    for op in trace.ops if trace is not None else ():
        if op.op != "getitem" or len(op.inputs) != 1 or not op.inputs[0].name or not op.outputs or trace is None:
            continue
        given = op.arguments.get("1")
        index = [given] if isinstance(given, int) else given if isinstance(given, list) else []
        lengths = [n for n, size in zip(index, op.inputs[0].shape, strict=False) if type(n) is int and 2 <= n < size]
        if len(lengths) != 1 or any(type(n) is int and n != lengths[0] for n in index):
            continue
        (length,), row = lengths, op.outputs[0]
        for user in consumers(trace, row):
            other = next((fact for fact in user.inputs if fact.id != row.id), None)
            if user.op not in ops(Trait.PLUS) or other is None or not 2 <= len(other.shape) <= 4:
                continue
            if length not in other.shape[:-1] or length in row.shape or other.shape[-1] != row.shape[-1]:
                continue
            return [
                case.finding(
                    (
                        f"{op.inputs[0].name} is indexed with {length}, the length of {list(other.shape)}: all positions get the "
                        "same row"
                    ),
                    "Slice it: [:, :length] (or [:length]), not [:, length].",
                    at=op,
                    evidence={
                        "table": list(op.inputs[0].shape),
                        "index": length,
                        "row": list(row.shape),
                        "added_to": list(other.shape),
                    },
                    confidence=0.9,
                )
            ]
    return []


@rule("labels-not-mirrored", severity="error", phase="data")
def labels_not_mirrored(case: Case) -> list[Finding]:
    """Images are flipped or rotated at random, and the function that does so mirrors nothing else; but every pixel
    has its own label (cross-entropy over a map as large as the image), which then stays where it was.
    """
    sizes = {tuple(row.shape[-2:]) for row in case.facts.batches.inputs if row.index == 0 and len(row.shape) == 4}
    for trace, loss in case.trained_ops():
        if loss.op not in ("cross_entropy", "nll_loss") or len(loss.inputs) < 2 or not case.facts.mirrored:
            continue
        target = loss.inputs[1]
        by_pixel = len(target.shape) == 3 and target.dtype.startswith("int") and min(target.shape[-2:]) >= 8
        if not by_pixel or target.shape[-2:] not in sizes:
            continue
        found = case.facts.mirrored[0]
        return [
            case.finding(
                f"`{found.name}` is mirrored at random, but its labels are not: each pixel has a label, which stays where it was",
                "Mirror images and labels together, with the same random draw.",
                step=trace.step,
                site="data",
                source=found.line,
                evidence={"labels": list(target.shape), "loss_line": str(loss.source or "")},
                confidence=0.88,
            )
        ]
    return []
