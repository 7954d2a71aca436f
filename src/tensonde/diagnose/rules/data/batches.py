"""What the model is fed: order, randomness of workers, batch sizes, constant inputs and labels."""

from __future__ import annotations

from math import isfinite, log
from typing import Any

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import some
from tensonde.model.facts import LoaderFact, OrdersApart, ValueTargets
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, modules
from tensonde.model.site import SourceLine


def _trained_loader(case: Case) -> LoaderFact | None:
    loaders = [loader for loader in case.facts.loaders if loader.steps]
    return max(loaders, key=lambda loader: loader.steps, default=None)


@rule("data-not-shuffled", severity="error")
def not_shuffled(case: Case) -> list[Finding]:
    """Nearly every training batch contains only one class, and the batches together contain several: the data are
    sorted by class. Shuffled batches of four or more would hardly ever be pure. Silent if the program's own sampler
    chooses.
    """
    labels = [row for row in case.facts.batches.labels if row[0] >= 4]
    if len(labels) < 6:
        return []
    pure = [row for row in labels if row[1] >= 0.95 * row[0]]
    classes: dict[int, int] = {}
    for _, _, top in pure:
        classes[top] = classes.get(top, 0) + 1
    if len(pure) < 0.75 * len(labels) or len(classes) < 2 or max(classes.values()) > 0.9 * len(pure):
        return []
    loader = _trained_loader(case)
    if loader is not None and (
        loader.own_batch_sampler or loader.sampler not in ("SequentialSampler", "RandomSampler")
    ):
        return []
    sequential = loader is not None and loader.sampler == "SequentialSampler"
    return [
        case.finding(
            f"{len(pure)} of {len(labels)} batches contain a single class: the data are sorted and not shuffled",
            "Use DataLoader(..., shuffle=True)." if sequential else "Shuffle the samples before making batches.",
            site="data",
            source=loader.made if sequential and loader else case.facts.batches.label_line,
            evidence={
                "batches": len(labels),
                "with_one_class": len(pure),
                "classes": len(classes),
                "sampler": loader.sampler if loader else None,
            },
            confidence=0.93,
        )
    ]


@rule("labels-constant", severity="warning")
def constant_labels(case: Case) -> list[Finding]:
    """Every label of every batch is the same class. No loader order can do that: the data set contains one class, for
    example because data sorted by class are split without shuffling; the finding names where the data set is made.
    The same holds for numeric targets if a loader provides them and they are all equal, for example after a cast to
    integers. Targets that the program makes itself (the ones of a GAN) are meant to be constant.
    """
    values = case.facts.batches.value_targets
    if values.constant and values.batches >= 10 and values.elements >= 50:
        return [_constant_values(case, values)]
    labels = case.facts.batches.labels
    if len(labels) < 10 or sum(row[0] for row in labels) < 50:
        return []
    if any(row[1] != row[0] for row in labels) or len({row[2] for row in labels}) != 1:
        return []
    loader = _trained_loader(case)
    return [
        case.finding(
            f"All labels of {len(labels)} batches are class {labels[0][2]}",
            "Check how labels are made; if the data are sorted, shuffle them before they are split.",
            site="data",
            source=(loader.data_line or loader.made) if loader else case.facts.batches.label_line,
            evidence={"batches": len(labels), "labels": sum(row[0] for row in labels)},
            confidence=0.8,
        )
    ]


def _constant_values(case: Case, values: ValueTargets) -> Finding:
    loader = _trained_loader(case)
    made = values.line or ((loader.data_line or loader.made) if loader else None)
    return case.finding(
        f"All {values.elements} targets of {values.batches} batches are {values.value or 0:g}",
        "Check how the targets are made: a cast to int (or a comparison) may have removed every difference.",
        site="data",
        source=made,
        evidence={"batches": values.batches, "elements": values.elements, "value": values.value},
        confidence=0.85,
    )


@rule("inputs-constant", severity="error")
def constant_inputs(case: Case) -> list[Finding]:
    """All samples of a batch are equal, in every batch examined: the inputs carry no information. If the data set has
    one buffer that all samples share (or that holds exactly their values), it refills the buffer for each sample and
    returns it without a copy, so each sample is the last one; the finding names where it is returned.
    """
    inputs = [row for row in case.facts.batches.inputs if row.index == 0 and row.shape[0] >= 4]
    labels = case.facts.batches.labels
    varied = any(row[1] < row[0] for row in labels)
    if len(inputs) < 3 or not all(row.same_rows for row in inputs) or not varied:
        return []
    loader = _trained_loader(case)
    shared = case.facts.batches.shared
    buffer = shared.buffer if shared else None
    why = f": {shared.dataset} gives the same memory for all of them" if shared else ""
    made = shared.line if shared else None
    if loader is not None:
        made = made or loader.sample_line or loader.made
    return [
        case.finding(
            f"All samples of every batch are the same while their labels differ{why}"
            + (f" (self.{buffer})" if buffer else ""),
            "Return a copy: a buffer that is refilled for each sample (torch.from_numpy shares its memory) holds the last sample for all."
            if shared
            else "Check how a sample is made from its index.",
            site=f"{inputs[0].root}:in",
            source=made,
            evidence={
                "batches": len(inputs),
                "shape": inputs[0].shape,
                "absmax": inputs[0].absmax,
                **{name: held for name in ("dataset", "buffer", "kept_in") if (held := getattr(shared, name, None))},
            },
            confidence=0.95 if shared else 0.9,
        )
    ]


@rule("labels-out-of-step", severity="error", phase="data")
def out_of_step(case: Case) -> list[Finding]:
    """Inputs and labels are put into two different random orders, so a label no longer belongs to its input. Either
    two loaders, one of inputs and one of labels, shuffle independently in one `zip`; or two variables, each indexed
    by its own permutation (or shuffled by itself), are then used as a pair. Or one of the two comes from a list in
    its own order, the other from the same list sorted or reversed.

    The rule judges what the program does, not how it learns; but if both orders are random, a loss that falls well
    silences it.
    """
    pair = case.facts.orders_apart
    if pair and pair.order:
        return [_ordered_apart(case, pair)]
    losses = [value for _, value in case.series("loss") if isfinite(value)]
    tenth = max(1, len(losses) // 10)
    if len(losses) < 20 or sum(losses[-tenth:]) < 0.75 * tenth * _chance(case, sum(losses[:tenth]) / tenth):
        return []
    evidence = {"first_loss": losses[0], "last_loss": losses[-1]}
    if pair:
        return [
            _apart(
                case,
                " and ".join(pair.names),
                pair.line,
                {**evidence, "other": pair.other.line if pair.other else None},
            )
        ]
    loaders = [loader for loader in case.facts.loaders if loader.sampler == "RandomSampler" and _kept(loader)]
    for inputs in loaders:
        for labels in loaders:
            if (
                _kept(inputs).startswith("float")
                and _kept(labels).startswith("int")
                and inputs.length == labels.length
                and inputs.passes == labels.passes
                and inputs.iterated
                and inputs.iterated == labels.iterated
            ):
                return [_apart(case, "the loaders of inputs and of labels", inputs.iterated, evidence)]
    return []


def _kept(loader: LoaderFact) -> str:
    """The dtype of a data set of one tensor."""
    return loader.holds[0] if loader.holds and len(loader.holds) == 1 else ""


def _chance(case: Case, first: float) -> float:
    """The loss of a model that knows nothing: log(classes), where the loss is a cross-entropy; else what it began with."""
    for op in case.first.ops if case.first is not None else ():
        if op.op == "cross_entropy" and len(op.inputs[0].shape) >= 2:
            return min(first, log(op.inputs[0].shape[1]))
    return first


def _ordered_apart(case: Case, pair: OrdersApart) -> Finding:
    other = pair.other.line if pair.other else None
    return case.finding(
        f"{', '.join(pair.names)} are taken from the same samples in two orders ({pair.order}, and the original one): they no longer belong together",
        "Put the samples into one order first, and take everything from that.",
        site="data",
        source=pair.line,
        evidence={"order": pair.order, "other": other},
        confidence=0.9,
    )


def _apart(case: Case, what: str, line: SourceLine | None, evidence: dict[str, Any]) -> Finding:
    return case.finding(
        f"{what} are each shuffled in their own order: labels no longer match their inputs",
        "Draw one permutation and index both with it, or keep both in one data set and shuffle that.",
        site="data",
        source=line,
        evidence=evidence,
        confidence=0.93,
    )


@rule("same-batch-every-step", severity="error", phase="data", unless=("inputs-constant",))
def same_batch(case: Case) -> list[Finding]:
    """The model gets the very same values in every step, while the loader has more: its iterator is created anew in
    every step (`next(iter(loader))` in the loop) and returns its first batch each time, or the loop iterates over the
    loader and feeds something else. Training on one batch on purpose takes it from the loader once, and is not
    reported; nor is a loader whose data set is one batch. Without a loader, the program's text must show it: the loop
    iterates over data, or in strides over their indices, and its body never reads the item, or it takes the first
    item of an iterator that is created there.
    """
    batches = case.facts.batches
    trained = [name for name, root in case.facts.roots.items() if sum(root.trained.values())]
    loader = _trained_loader(case)
    seen = batches.repeats.get(trained[0]) if len(trained) == 1 else None
    if not seen or seen.looked_at < 10 or seen.differ:
        return []
    if loader is None:
        return _taken_again(case, trained[0], seen.looked_at)
    if not loader.length or not loader.batch_size or loader.length <= loader.batch_size:
        return []
    anew = loader.passes >= 0.8 * loader.steps
    if not anew and loader.steps < 3 * loader.passes:
        return []
    if not anew and loader.passes == 1 and loader.steps > 2 * loader.length / loader.batch_size:
        return []  # taken once, and kept
    return [
        case.finding(
            (f"The model sees the same batch in all {seen.looked_at} steps compared, of a data set of {loader.length}"),
            (
                "Create the iterator once, outside the loop (`for x, y in loader:`): a new one begins at the first "
                "batch again."
                if anew
                else "Feed the model the batch that the loop takes from the loader."
            ),
            step=1,
            site=f"{trained[0]}:in",
            source=loader.iterated if anew else batches.call_line,
            evidence={
                "steps_compared": seen.looked_at,
                "different": 0,
                "passes": loader.passes,
                "steps": loader.steps,
                "length": loader.length,
            },
            confidence=0.93,
        )
    ]


def _taken_again(case: Case, root: str, looked_at: int) -> list[Finding]:
    line = case.facts.batches.taken_again
    if line is None:
        return []
    anew = "next(" in line.code
    return [
        case.finding(
            f"The model sees the same batch in all {looked_at} steps compared"
            + ("" if anew else ": the loop never uses what it iterates over"),
            "Create the iterator once, outside the loop: a new iterator starts at the first batch again."
            if anew
            else "Select the batch with the loop's variable.",
            step=1,
            site=f"{root}:in",
            source=line,
            evidence={"steps_compared": looked_at, "different": 0},
            confidence=0.9,
        )
    ]


@rule("workers-share-randomness", severity="error")
def workers(case: Case) -> list[Finding]:
    """Each worker of a loader gets a copy of the dataset with its random generator in the same state, so all of them
    draw the same numbers, and again in the next epoch. torch seeds its own, Python's and numpy's global generators
    for each worker; a generator that the dataset keeps (or a `worker_init_fn` that seeds all alike) undoes that.
    """
    found = []
    for loader in case.facts.loaders:
        if not loader.workers or not loader.steps:
            continue
        start = loader.worker_init
        repeats = loader.workers > 1 or loader.passes > 1
        if start is None and loader.generators and repeats:
            kept = loader.generators[0]
            found.append(
                case.finding(
                    (
                        f"{loader.workers} workers draw the same random numbers: each has a copy of "
                        f"{kept.holder}.{kept.name} ({kept.type})"
                    ),
                    (
                        "Draw from torch's or numpy's global generator, or make the generator in worker_init_fn "
                        "from torch.initial_seed()."
                    ),
                    step=1,
                    site="data",
                    source=kept.line or loader.made,
                    evidence={
                        "workers": loader.workers,
                        "generator": f"{kept.holder}.{kept.name}",
                        "passes": loader.passes,
                        "worker_init_fn": None,
                    },
                    confidence=0.9,
                )
            )
        elif start is not None and start.seeds and not start.uses_worker and loader.workers > 1:
            found.append(
                case.finding(
                    (
                        f"worker_init_fn gives all {loader.workers} workers the same seed: they draw the same "
                        "random numbers"
                    ),
                    "Seed from torch.initial_seed(), which differs for each worker and epoch.",
                    step=1,
                    site="data",
                    source=start.line,
                    evidence={"workers": loader.workers, "uses_worker_id": False},
                    confidence=0.9,
                )
            )
    return found[:2]


@rule("batch-norm-tiny-batch", severity="warning", phase="forward")
def tiny_batches(case: Case) -> list[Finding]:
    """Batch norm in train mode sees one sample at a time (or, without spatial extent, two or three). It normalizes
    each sample by itself, and the running statistics that eval mode uses do not describe that.
    """
    norms = [
        (name, module)
        for name, module in case.facts.modules.items()
        if module.type in _NORMS and module.settings.get("track_running_stats", True)
    ]
    sizes = {int(size): count for size, count in case.facts.batches.sizes.items()}
    if not norms or sum(sizes.values()) < 3:
        return []
    loader = _trained_loader(case)
    tiny = sum(count for size, count in sizes.items() if size == 1) >= 0.9 * sum(sizes.values())
    small = sum(count for size, count in sizes.items() if size <= 3) >= 0.9 * sum(sizes.values())
    hit = []
    for name, module in norms:
        site = case.sites.get(f"{name}:out")
        if site is None or not site.shape:
            continue
        values = 1
        for size in (site.shape[0], *site.shape[2:]):
            values *= size
        if (tiny and site.shape[0] == 1) or (small and values <= 3):
            hit.append((name, module, values))
    if not hit:
        return []
    size = max(sizes, key=lambda key: sizes[key])
    return [
        case.finding(
            (
                f"{some([name for name, *_ in hit])} ({hit[0][1].type}) trained with batches of {size}: eval "
                "mode will not match"
            ),
            "Use larger batches, or GroupNorm/InstanceNorm, which do not depend on the batch.",
            site=f"{hit[0][0]}:out",
            source=loader.made if loader and loader.batch_size == size else hit[0][1].made,
            evidence={"batch_size": size, "layers": [name for name, *_ in hit][:10], "values_per_channel": hit[0][2]},
            confidence=0.9,
        )
    ]


_NORMS = modules(Trait.BATCH_NORM)
