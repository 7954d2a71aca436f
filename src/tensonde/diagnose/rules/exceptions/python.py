"""Plain errors of the program's own Python: what was asked for, what is there, and what to change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensonde.diagnose.exceptions import Cause, Event, family, message
from tensonde.program.lines import from_json


def _about(event: Event, kind: str) -> Mapping[str, Any] | None:
    found = event.get("python")
    return found if found and found.get("kind") == kind else None


def _at(line: Mapping[str, Any] | None) -> str:
    where = from_json(line)
    return f" (made at {where})" if where else ""


def _perhaps(names: list[str]) -> str:
    return " or ".join(f"`{name}`" for name in names[:2])


@family("missing-key")
def missing_key(event: Event) -> Cause | None:
    """A dictionary does not have the key that is requested. The finding names the keys that it has, those with
    similar spelling first, and the line that made the dictionary.
    """
    found = _about(event, "key")
    if found is None:
        return None
    key, holder = found["key"], found["holder"]
    if found.get("environment"):
        return Cause(
            title=f"the environment has no variable {key}",
            advice=f"Set it before the program starts, or give a default: os.environ.get({key}, ...).",
            confidence=0.95,
        )
    if "has" not in found:
        return None
    shown = ", ".join(found["has"]) + (", ..." if found["size"] > len(found["has"]) else "")
    near = found.get("near") or []
    return Cause(
        title=f"`{holder}` has no key {key}" + (f", but {_perhaps(near)}" if near else ""),
        advice=(f"Use {_perhaps(near)} here, or " if near else "Add it, or ")
        + f"{'rename it' if near else 'ask for one that is there'} where `{holder}` is made{_at(found.get('made'))}. Its keys: {shown or 'none'}.",
        evidence={"key": key, "keys": shown},
        confidence=0.9,
    )


@family("missing-attribute")
def missing_attribute(event: Event) -> Cause | None:
    """An object does not have the attribute that is requested: `__init__` gave the layer a different name, or an
    option is spelled differently. The finding names attributes with similar spelling.
    """
    found = _about(event, "attribute")
    if found is None:
        return None
    name, near = found["name"], found.get("near") or []
    return Cause(
        title=f"{found['of']} has no `{name}`" + (f", but {_perhaps(near)}" if near else ""),
        advice=f"Write {_perhaps(near)} here, or give {found['of']} a `{name}` where it is created{_at(found.get('made'))}."
        if near
        else f"Set `{name}` before this line; nothing in {found['of']} has a similar name{_at(found.get('made'))}.",
        evidence={"attribute": name, "alike": near},
        confidence=0.9 if near else 0.7,
    )


@family("value-is-none")
def value_is_none(event: Event) -> Cause | None:
    """The program uses None as a value. Tensonde traces it back: a function without `return` made it, or a line
    assigned None and nothing replaced it.
    """
    found = _about(event, "none")
    if found is None or (not found.get("made") and not found.get("end")):
        return None
    name = found["name"]
    if found.get("end"):
        return Cause(
            title=f"`{name}` is None: {found['function']} returns nothing",
            advice=f"Return the result at the end of {found['function']}.",
            line=found["end"],
            evidence={"variable": name},
            confidence=0.93,
        )
    told = f": it comes from `{found['value']}`" if found.get("value") != "None" else ", as it was given at the start"
    return Cause(
        title=f"`{name}` is None{told}",
        advice=f"Give `{name}` a value before this line, or check `if {name} is None` first.",
        evidence={"variable": name, "made at": str(from_json(found.get("made")))},
        confidence=0.8,
    )


@family("never-assigned")
def never_assigned(event: Event) -> Cause | None:
    """A name has no value where it is read. If only a loop assigns it, the loop had nothing to iterate over: a loader
    with fewer samples than a batch and `drop_last`, or an exhausted iterator.
    """
    found = _about(event, "unbound")
    if found is None:
        return None
    name, near = found["name"], found.get("near") or []
    if found.get("loop"):
        over = found["over"]
        short = next(
            (
                loader
                for loader in event.get("loaders") or ()
                if loader["drop_last"]
                and loader["length"] is not None
                and loader["length"] < (loader["batch_size"] or 0)
            ),
            None,
        )
        why = (
            f"{short['length']} samples make no batch of {short['batch_size']} with drop_last=True"
            if short
            else f"`{over}` gives nothing"
        )
        return Cause(
            title=f"the loop over `{over}` never runs ({why}), so `{name}` has no value",
            advice="Take a smaller batch_size or drop_last=False."
            if short
            else f"Find out why `{over}` is empty: a filter that leaves nothing, an iterator that was already used.",
            line=(short or {}).get("line") or found["loop"],
            evidence={"variable": name, **({"length": short["length"]} if short else {})},
            confidence=0.95 if short else 0.85,
        )
    if found.get("bound"):
        return Cause(
            title=f"`{name}` is read before it has a value: the line that gives it one did not run",
            advice=f"Give `{name}` a value before the branch, or in every branch.",
            line=found["bound"],
            confidence=0.7,
        )
    return Cause(
        title=f"there is no `{name}`" + (f", but {_perhaps(near)}" if near else ""),
        advice=f"Write {_perhaps(near)}." if near else f"Import or define `{name}` before this line.",
        confidence=0.85,
    )


@family("call-arguments")
def call_arguments(event: Event) -> Cause | None:
    """A call does not fit what it calls: an argument is missing, there is one too many, or a name is unknown. The
    finding shows the signature and, for the program's own functions, the line that defines them.
    """
    found = _about(event, "call")
    if found is None:
        return None
    near = found.get("near") or []
    text = message(event).splitlines()[0].partition("() ")[2] or message(event).splitlines()[0]
    here = f", defined at {from_json(found['defined'])}" if found.get("defined") else ""
    return Cause(
        title=f"`{found['called']}` {text[:140]}",
        advice=(f"Did you mean {_perhaps(near)}? " if near else "Change the call, or the definition. ")
        + f"It takes {found['takes'] or 'other arguments'}{here}.",
        evidence={"takes": found["takes"]},
        confidence=0.9,
    )


@family("unpacking")
def unpacking(event: Event) -> Cause | None:
    """A line unpacks a value into more or fewer names than it has parts. A collate function gets a list of samples,
    to be transposed by `zip(*batch)`; a loop over a loader yields whatever an item of the data set is.
    """
    found = _about(event, "unpack")
    if found is None:
        return None
    wanted, value = found["wanted"], found.get("value") or "the value"
    count = found.get("length")
    what = (
        f"a {found['type']}" + (f" of {count}" if count is not None else "") if found.get("type") else "something else"
    )
    if found.get("parts") == wanted and not found.get("loop"):
        return Cause(
            title=f"`{value}` is a list of {count} samples of {wanted} parts each, not {wanted} lists",
            advice=f"Transpose it: zip(*{value}).",
            evidence={"length": count, "parts": wanted},
            confidence=0.93,
        )
    if found.get("loop"):
        return Cause(
            title=f"`{value}` does not yield {wanted} things at a time",
            advice="Look at one item (next(iter(...))): an item of the data set must have as many parts as the loop has names; "
            "enumerate() adds one.",
            confidence=0.8,
        )
    return Cause(
        title=f"`{value}` is {what} and cannot be unpacked into {wanted}",
        advice=f"Use as many names as `{value}` has parts, or change the code that makes it.",
        evidence={"wanted": wanted, **({"length": count} if count is not None else {})},
        confidence=0.8,
    )


@family("missing-file")
def missing_file(event: Event) -> Cause | None:
    """A file or folder does not exist. The finding says which part of the path is missing, where a relative path
    starts, and which similar names are beside it.
    """
    found = _about(event, "file")
    if found is None:
        return None
    near = found.get("near") or []
    from_here = (
        f" A relative path starts from {found['working']}, where the program was started." if found["relative"] else ""
    )
    return Cause(
        title=f"{found['path']} is not there: {found['folder']} has no {found['missing']}",
        advice=(f"There is {_perhaps(near)}. " if near else "Correct the path, or create the file first.") + from_here,
        evidence={"folder": found["folder"]},
        confidence=0.9,
    )


@family("position-past-the-end")
def position(event: Event) -> Cause | None:
    """A list or tensor is indexed past its end."""
    found = _about(event, "position")
    if found is None or found["length"] is None:
        return None
    holder, length = found["holder"], found["length"]
    shape = f" of shape {found['shape']}" if found.get("shape") is not None else ""
    asked = f"element {found['index']}" if "index" in found else "an element past the end"
    return Cause(
        title=f"`{holder}`{shape} has {length} elements, and the index is {asked}",
        advice=f"`{holder}` is empty: look at what fills it{_at(found.get('made'))}."
        if length == 0
        else f"Count from 0 to {length - 1}, or look at why `{holder}` is this short{_at(found.get('made'))}.",
        evidence={"length": length},
        confidence=0.85,
    )
