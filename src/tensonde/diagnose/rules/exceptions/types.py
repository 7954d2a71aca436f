"""Exceptions about dtypes, devices and indices: the tensor that does not fit, and the line that made it so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tensonde.diagnose.exceptions import Cause, Event, family, innermost, message
from tensonde.model.ops import Trait, ops
from tensonde.program.lines import from_json

_DTYPE = re.compile(
    r"dtype|scalar type|same type|can't be cast|not implemented for '(\w+)'|Found dtype|type of '\w+' should be same|type must be same|"
    r"types? \(.*should be the same",
    re.IGNORECASE,
)
_LOSSES_WITH_CLASSES = ops(Trait.CLASS_LOSS)


_MINDSPORE_LABELS = re.compile(r"For '(\w+)', the 'labels' should be (\w+), but got 'mindspore\.(\w+)'")


@family("label-dtype")
def label_dtype(event: Event) -> Cause | None:
    """A loss over classes needs integer labels (int64), a loss over values needs floats; the label comes from the
    data. If the tensor can be traced to a data set, the finding names the line of `__getitem__` (or of the tensor)
    that makes it.
    """
    if labels := _MINDSPORE_LABELS.search(message(event)):
        loss, needed, given = labels.groups()
        return Cause(
            title=f"{loss} needs {needed.lower()} class labels, but the labels are {given}",
            advice=f"Convert the labels where they are made: .astype(np.{needed.lower()}).",
            evidence={"labels.dtype": given},
            confidence=0.85,
        )
    if not _DTYPE.search(message(event)):
        return None
    inputs: Mapping[str, Any] = event.get("inputs") or {}
    target, op = inputs.get("target"), str(event.get("op") or "")
    if target is None:
        return None
    whole = target["dtype"] in ("int64", "int32", "int16", "int8", "uint8", "bool")
    if op in _LOSSES_WITH_CLASSES:
        if target["dtype"] in ("int64", "uint8"):
            return None
        given = (inputs.get("input") or {}).get("shape")
        if not whole and given == target["shape"]:
            return None
        needs, cast = "int64 class labels", ".long()"
    elif whole:
        needs, cast = "float targets", ".float()"
    else:
        return None
    return Cause(
        title=f"{op} needs {needs}, but the target is {target['dtype']} {_from(target)}",
        advice=f"Convert the label where it is made: {cast}.",
        line=_line(target),
        evidence={"target.dtype": target["dtype"], "target.shape": target["shape"], **_origin(target)},
        confidence=0.95 if _line(target) else 0.8,
    )


_INDEX = re.compile(
    r"Expected dtype int32/int64 for index|used as indices must be|index_select\(\): Expected dtype|"
    r"'indices' to have one of the following scalar types|only (integer|integers), slices",
    re.IGNORECASE,
)


@family("index-dtype")
def index_dtype(event: Event) -> Cause | None:
    """The index that picks rows or classes (of an embedding, in gather, in indexing) is a float tensor. The finding
    names where it is made.
    """
    if not _INDEX.search(message(event)):
        return None
    inputs: Mapping[str, Any] = {"index": event["index"]} if event.get("index") else event.get("inputs") or {}
    odd = [
        f for f in inputs.values() if "float" in f["dtype"] and not f.get("parameter") and not f.get("requires_grad")
    ]
    if len(odd) != 1:
        return None
    return Cause(
        title=f"`{event.get('op') or 'indexing'}` needs whole numbers, but is given {odd[0]['dtype']} {_from(odd[0])}",
        advice="Convert it where it is made: .long() (or dtype=np.int64).",
        line=_line(odd[0]),
        evidence={"given.dtype": odd[0]["dtype"], **_origin(odd[0])},
        confidence=0.9,
    )


@family("dtype-mismatch")
def dtype_mismatch(event: Event) -> Cause | None:
    """Tensors of one op have different dtypes: float64 from numpy against float32 weights, integers where floats
    belong, half precision where the CPU has no kernel. The others must have the dtype of the parameters; the finding
    names where the odd tensor is made.
    """
    text = message(event)
    found = _DTYPE.search(text)
    if not found:
        return None
    inputs: Mapping[str, Any] = event.get("inputs") or {}
    weights = [fact for fact in inputs.values() if fact.get("parameter")]
    wanted = weights[0]["dtype"] if weights else None
    layer = innermost(event)
    odd = {
        name: fact for name, fact in inputs.items() if not fact.get("parameter") and wanted and fact["dtype"] != wanted
    }
    if odd:
        fact = next(iter(odd.values()))
        return Cause(
            title=f"{layer.get('name') or event.get('op')} has {wanted} weights, but is given {fact['dtype']} "
            f"{_from(fact)}",
            advice=f"Convert it where it is made: .to(torch.{wanted})"
            + (" (numpy makes float64 by default)." if fact["dtype"] == "float64" else "."),
            line=_line(fact),
            evidence={"given.dtype": fact["dtype"], "wanted.dtype": wanted, **_origin(fact)},
            confidence=0.9,
        )
    if found[1]:
        return Cause(
            title=f"`{event.get('op') or 'an op'}` does not support {found[1]} on this device",
            advice="Convert the tensor first; on a CPU, use half precision through torch.autocast('cpu', "
            "dtype=torch.bfloat16).",
            evidence={"dtype": found[1]},
        )
    kinds = {name: fact["dtype"] for name, fact in inputs.items()}
    if len(set(kinds.values())) > 1:
        return Cause(
            title=f"`{event.get('op') or 'an op'}` of "
            + " and ".join(f"{name} ({kind})" for name, kind in kinds.items()),
            advice="Give them the same dtype where they are made.",
            evidence=kinds,
            confidence=0.7,
        )
    return None


@family("index-out-of-range")
def index_out_of_range(event: Event) -> Cause | None:
    """An index is outside the table, or a label is not a class. The finding gives the first offending value and its
    position, read from the tensors themselves. Labels from 1 to the number of classes mean that the data count from
    1; otherwise the layer is too small, and the finding names the line that builds it.
    """
    found = event.get("range")
    if not found:
        return None
    value, size, first = found["value"], found["size"], found["position"]
    evidence = {name: found[name] for name in ("value", "position", "count", "size", "min", "max")}
    where = found.get("origin") or {}
    layer = innermost(event)
    if found["what"] == "label":
        made = found.get("made_by") or {}
        from_one = found["min"] == 1 and found["max"] == size
        counts = "; the labels run from 1" if from_one else ""
        return Cause(
            title=f"label {value} at {first} is not a class: there are {size} outputs, so labels go from 0 to "
            f"{size - 1}{counts}",
            advice="Subtract 1 from the labels where they are made."
            if from_one
            else "Negative labels need ignore_index, or do not belong here."
            if value < 0
            else f"Give the last layer {found['max'] + 1} outputs, or correct the labels.",
            line=where.get("line") if from_one or value < 0 else made.get("line") or where.get("line"),
            module=made.get("module") if not from_one else None,
            evidence=evidence,
            confidence=0.9,
        )
    return Cause(
        title=f"index {value} at {first} is outside {layer.get('name') or 'the table'}, which has {size} rows",
        advice=f"The table needs at least {found['max'] + 1} rows; check the size of the vocabulary, and special "
        "tokens added to it."
        if value >= 0
        else "Indices must not be negative: check what marks padding.",
        line=layer.get("made") if value >= 0 else where.get("line"),
        evidence=evidence,
        confidence=0.9,
    )


@family("device-mismatch")
def device_mismatch(event: Event) -> Cause | None:
    """Tensors of one op are on different devices. The odd one is usually a tensor that a module keeps as a plain
    attribute, which `model.to(device)` does not move, a batch that was not moved, or the model itself. The finding
    names the line that made it and the line that moved the others.
    """
    where = event.get("devices")
    if not where or len(set(where.values())) < 2:
        return None
    inputs: Mapping[str, Any] = event.get("inputs") or {}
    wanted = next((fact["device"] for fact in inputs.values() if fact.get("parameter")), None)
    kinds = list(where.values())
    wanted = wanted or max(sorted(set(kinds)), key=lambda kind: (kinds.count(kind), kind != "cpu"))
    kept_apart = [n for n, f in inputs.items() if f.get("attribute")]
    if len(kept_apart) == 1 and len(inputs) > 1:  # the only one that does not move with the model or the batch
        wanted = next(f["device"] for n, f in inputs.items() if n != kept_apart[0])
    name, fact = next((n, f) for n, f in inputs.items() if f["device"] != wanted)
    others = {n: f for n, f in inputs.items() if f["device"] == wanted}
    moves: Mapping[str, Any] = event.get("moves") or {}
    stayed = next((n for n, f in others.items() if f.get("parameter")), None)
    kept = fact.get("attribute")
    line = fact.get("line") if kept else _line(fact)
    advice = f"Move it: .to('{wanted}')."
    if kept:
        advice = f"Register {kept} as a buffer (self.register_buffer), so that it moves with the module."
    elif stayed is not None and wanted == "cpu":  # the batch was moved, and the model was not
        advice = f"The model is not moved: call .to('{fact['device']}') on it before its optimizer is made."
        line = (moves.get(stayed) or {}).get("model") or line
    apart = [f"{name} is on {fact['device']}{_came(moves.get(name), line, _line(fact))}"]
    ways: dict[str, list[str]] = {}
    for n, f in others.items():
        ways.setdefault(f" on {f['device']}{_came(moves.get(n), line)}", []).append(n)
    apart += [" and ".join(names) + way for way, names in ways.items()]
    return Cause(
        title=f"`{event.get('op')}` of tensors on different devices: {', '.join(apart[:3])}",
        advice=advice,
        line=line,
        evidence=where,
        confidence=0.9,
    )


def _came(move: Mapping[str, Any] | None, named: Any, made: Mapping[str, Any] | None = None) -> str:
    """How a tensor got to its device; the line that the finding itself is at is not said again."""
    move = move or {}
    for said, line in (
        ("moved there at", move.get("moved")),
        ("of the model made at", move.get("model")),
        ("made at", made),
    ):
        source = from_json(line)
        if source is not None and line != named:
            return f" ({said} {source})"
    return ""


@family("accelerator-missing")
def accelerator_missing(event: Event) -> Cause | None:
    """The script asks for a device that this machine, or this build of the framework, does not have."""
    text = message(event)
    if not re.search(
        r"not compiled with CUDA|No CUDA GPUs|Found no NVIDIA|CUDA driver|"
        r"no NVIDIA driver|not linked with support for mps",
        text,
    ):
        return None
    return Cause(
        title="the script asks for an accelerator that does not exist here",
        advice='Choose the device at run time: device = "cuda" if torch.cuda.is_available() else "cpu".',
        confidence=0.95,
    )


@family("probability-range")
def probability_range(event: Event) -> Cause | None:
    """binary_cross_entropy takes probabilities. Values outside 0 to 1 mean that the sigmoid before it is missing, or
    that a target is not a probability. The finding names where the output leaves the model, if that is known.
    """
    if not re.search(r"should be between 0 and 1|all elements of (input|target)", message(event)):
        return None
    return Cause(
        title="binary_cross_entropy gets values outside 0 to 1",
        advice="Give it probabilities (torch.sigmoid of the output), or better use BCEWithLogitsLoss on the output "
        "itself.",
        line=(event.get("raw_output") or {}).get("line"),
        confidence=0.85,
    )


def _line(fact: Mapping[str, Any]) -> Mapping[str, Any] | None:
    line: Mapping[str, Any] | None = (fact.get("origin") or {}).get("line") or fact.get("line")
    return line


def _from(fact: Mapping[str, Any]) -> str:
    origin = fact.get("origin") or {}
    name = f"`{origin['name']}`" if origin.get("name") else ""
    if origin.get("kind") == "data":
        return f"({name} from {origin.get('dataset')})" if name else f"(from {origin.get('dataset')})"
    line = from_json(_line(fact))
    return f"({name}{f' made at {line}' if line else ''})" if name or line else ""


def _origin(fact: Mapping[str, Any]) -> dict[str, Any]:
    origin = fact.get("origin") or {}
    return {
        f"origin.{name}": origin[name] for name in ("name", "kind", "dataset", "part") if origin.get(name) is not None
    }
