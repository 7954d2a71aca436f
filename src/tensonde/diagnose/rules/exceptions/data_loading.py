"""Exceptions that the data cause: last batches, uneven items, workers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tensonde.diagnose.exceptions import Cause, Event, code, family, innermost, message


@family("batchnorm-batch-of-one")
def batchnorm_batch_of_one(event: Event) -> Cause | None:
    """Batch normalization cannot train on one value per channel. If the length of the data set leaves a remainder of
    one sample, the last batch of each epoch is that sample. The loader's length and batch size show this, and the
    finding names the line that builds the loader.
    """
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
                title=f"{name} ({kind}) is trained with batch_size=1: there are no statistics of a single value",
                advice="Use larger batches, or GroupNorm / LayerNorm.",
                line=loader.get("line"),
                evidence=evidence,
                confidence=0.9,
            )
        if length % size == 1 and not loader.get("drop_last"):
            return Cause(
                title=f"the last batch of an epoch has one sample ({length} % {size} = 1), which {name} ({kind}) "
                "cannot normalise",
                advice="Give the loader drop_last=True, or a different batch size.",
                line=loader.get("line"),
                evidence=evidence,
                confidence=0.95,
            )
    return Cause(
        title=f"{name} ({kind}) is given one value per channel: input {shape}",
        advice="Batch normalisation in training needs more than one value per channel: larger batches, or eval() for "
        "inference.",
        evidence={"layer.input": shape},
        confidence=0.7,
    )


_SAMPLES = re.compile(r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)")


@family("last-batch-smaller")
def last_batch_smaller(event: Event) -> Cause | None:
    """The model's output has as many samples as a full batch of the loader (or a part of one), but there are only as
    many targets as in the last batch of an epoch (or the same part of it). Something between them is built for one
    batch size, such as the stages of a pipeline. The finding names the line that builds the loader.
    """
    told = _SAMPLES.search(message(event))
    if told is None:
        return None
    given, wanted = int(told[1]), int(told[2])
    for loader in event.get("loaders") or ():
        length, size = loader.get("length"), loader.get("batch_size")
        if not length or not size or loader.get("drop_last") or wanted == given:
            continue
        left = length % size
        if left and given * left == wanted * size:
            return Cause(
                title=f"the last batch of an epoch has {left} samples ({length} % {size}), but the model is built for {size}: "
                f"{given} outputs meet {wanted} targets",
                advice="Pass drop_last=True to the loader. The stages of a pipeline take micro-batches of one size only.",
                line=loader.get("line"),
                evidence={"length": length, "batch_size": size, "outputs": given, "targets": wanted},
                confidence=0.9,
            )
    return None


@family("uneven-items")
def uneven_items(event: Event) -> Cause | None:
    """The items of a batch have different shapes and cannot be stacked. The finding names the line of the data set
    that makes the differing part. If items are sequences, each with its own length, they differ by nature: then the
    loader lacks a `collate_fn` that pads, and the finding names the loader's line. One or two lengths, or images of
    several sizes, do not count as sequences.
    """
    facts = event.get("items")
    if facts is None:
        return None
    shapes = facts.get("shapes") or []
    sequences = _sequences(shapes) and facts.get("loader") is not None
    others = {"items_made_at": facts.get("line")} if sequences else {"loader_made_at": facts.get("loader")}
    return Cause(
        title=f"items of {facts.get('dataset', 'the data set')} have different "
        f"{'lengths' if sequences else 'shapes'} and cannot be stacked: {', '.join(map(str, shapes[:4]))}",
        advice="Give the loader a collate_fn that pads them (torch.nn.utils.rnn.pad_sequence)."
        if sequences
        else "Bring them to one shape (crop, pad), or give the loader a collate_fn that does.",
        line=facts.get("loader") if sequences else facts.get("line"),
        evidence={name: facts[name] for name in ("part", "shapes") if name in facts}
        | {name: f"{line['file']}:{line['line']}" for name, line in others.items() if line},
        confidence=0.9,
    )


def _sequences(shapes: list[list[int]]) -> bool:
    """Vectors, or rows of vectors, that differ in one dimension only and have three lengths or more."""
    if not shapes or len(shapes[0]) > 2 or any(len(shape) != len(shapes[0]) for shape in shapes):
        return False
    lengths = [set(sizes) for sizes in zip(*shapes, strict=True) if len(set(sizes)) > 1]
    return len(lengths) == 1 and len(lengths[0]) >= 3


@family("item-is-none")
def item_is_none(event: Event) -> Cause | None:
    """An item of a data set is None, and None cannot be batched: `__getitem__` returns nothing for some items."""
    facts = event.get("missing_item")
    if not facts:
        return None
    which = f" for item {facts['index']}" if facts.get("index") is not None else ""
    return Cause(
        title=f"{facts['dataset']}.__getitem__ returns None{which}",
        advice="Drop such items when the data set is built, or filter them in a collate_fn.",
        line=facts.get("line"),
        evidence={name: facts[name] for name in ("dataset", "index") if facts.get(name) is not None},
        confidence=0.93,
    )


@family("data-columns")
def data_columns(event: Event) -> Cause | None:
    """A data set gives a different number of columns than the network and its loss take. The finding names the line
    of the data set that produces the first surplus column.
    """
    facts = event.get("columns")
    if not facts:
        return None
    names = f" ({', '.join(facts['names'])})" if facts.get("names") else ""
    return Cause(
        title=f"the data set gives {facts['given']} columns{names}, the training takes {facts['taken']}",
        advice="Leave the others out (dataset.project([...])), or give Model a network that takes them all and computes its loss itself, without loss_fn."
        if facts["given"] > facts["taken"]
        else "Give the data set a column of labels, or give Model a network that computes its loss itself, without loss_fn.",
        line=facts.get("line"),
        evidence={name: facts[name] for name in ("given", "taken")},
        confidence=0.93,
    )


@family("data-worker")
def data_worker(event: Event) -> Cause | None:
    """A worker process of a loader failed; its traceback names the line of the data set."""
    facts = event.get("worker")
    if not facts or not facts.get("line"):
        return None
    return Cause(
        title=f"a DataLoader worker failed in {facts.get('function')}: {str(facts.get('message'))[:160]}",
        advice=_in_worker(str(facts.get("type")), str(facts.get("message")), facts["line"]),
        line=facts["line"],
        evidence={"type": facts.get("type")},
        confidence=0.9,
    )


def _in_worker(kind: str, text: str, line: Mapping[str, Any]) -> str:
    """What to change, by the kind of error: only its text came from the worker."""
    key = text.partition(": ")[2].strip()
    told = {
        "KeyError": f"{code(line)} has no key {key}: add it, or use a default for unknown keys (dict.get(key, default)).",
        "IndexError": f"{code(line)} indexes past the end: check what `__len__` returns, and empty items.",
        "FileNotFoundError": "Correct the path: in a worker, a relative path starts where the program was started.",
        "TypeError": f"An item has a different type than {code(line)} expects; None often stands for a missing value.",
    }.get(kind, "")
    return f"{told} Set num_workers=0 to see it in the main process.".strip()
