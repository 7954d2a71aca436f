"""Exceptions that the data cause: last batches, uneven items, workers."""

from __future__ import annotations

import re

from sonde.diagnose.exceptions import Cause, Event, family, innermost, message


@family("batchnorm-batch-of-one")
def batchnorm_batch_of_one(event: Event) -> Cause | None:
    """Batch normalisation cannot train on one value a channel. When the data set's length leaves a remainder of one
    sample, the last batch of each epoch is that sample: the loader's length and batch size say so, and the finding
    names the line that builds the loader."""
    if not re.search(r"more than 1 (value per channel|spatial element)", message(event)):
        return None
    layer = innermost(event)
    shape = next((given["shape"] for given in layer.get("inputs") or () if given["shape"]), None)
    name, kind = layer.get("name"), layer.get("type")
    for loader in event.get("loaders") or ():
        length, size = loader.get("length"), loader.get("batch_size")
        if not length or not size:
            continue
        evidence = {"length": length, "batch_size": size, "drop_last": loader.get("drop_last"), "layer.input": shape}
        if size == 1:
            return Cause(
                title=f"{name} ({kind}) is trained with batch_size=1: no statistics can be taken of one value",
                advice="Use larger batches, or GroupNorm / LayerNorm.",
                line=loader.get("line"),
                evidence=evidence,
                confidence=0.9,
            )
        if length % size == 1 and not loader.get("drop_last"):
            return Cause(
                title=f"the last batch of an epoch has one sample ({length} % {size} = 1), which {name} ({kind}) "
                "cannot normalise",
                advice="Give the loader drop_last=True, or another batch size.",
                line=loader.get("line"),
                evidence=evidence,
                confidence=0.95,
            )
    return Cause(
        title=f"{name} ({kind}) is given one value a channel: input {shape}",
        advice="Batch normalisation in training needs more than one value a channel: larger batches, or eval() for "
        "inference.",
        evidence={"layer.input": shape},
        confidence=0.7,
    )


@family("uneven-items")
def uneven_items(event: Event) -> Cause | None:
    """The items of a batch have different shapes and cannot be stacked; the finding names the line of the data set
    that makes the part that differs."""
    facts = event.get("items")
    if facts is None:
        return None
    shapes = facts.get("shapes") or []
    return Cause(
        title=f"items of {facts.get('dataset', 'the data set')} have different shapes and cannot be stacked: "
        f"{', '.join(map(str, shapes[:4]))}",
        advice="Bring them to one shape (crop, pad), or give the loader a collate_fn that does.",
        line=facts.get("line"),
        evidence={name: facts[name] for name in ("part", "shapes") if name in facts},
        confidence=0.9,
    )


@family("item-is-none")
def item_is_none(event: Event) -> Cause | None:
    """An item of a data set is None, which no batch can be made of: its `__getitem__` returns nothing for some items."""
    facts = event.get("missing_item")
    if not facts:
        return None
    which = f" for item {facts['index']}" if facts.get("index") is not None else ""
    return Cause(
        title=f"{facts['dataset']}.__getitem__ returns None{which}",
        advice="Leave such items out when the data set is built, or filter them in a collate_fn.",
        line=facts.get("line"),
        evidence={name: facts[name] for name in ("dataset", "index") if facts.get(name) is not None},
        confidence=0.93,
    )


@family("data-worker")
def data_worker(event: Event) -> Cause | None:
    """A worker process of a loader failed: the traceback that it sent names the line of the data set."""
    facts = event.get("worker")
    if not facts or not facts.get("line"):
        return None
    return Cause(
        title=f"a DataLoader worker failed in {facts.get('function')}: {str(facts.get('message'))[:160]}",
        advice="Set num_workers=0 to see it in the main process, or load that item alone.",
        line=facts["line"],
        evidence={"type": facts.get("type")},
        confidence=0.9,
    )
