"""Requests that the training thread answers: at a stop, or between two steps. Raises TensondeError with what is wrong with one."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tensonde.digest.reference import digest_array
from tensonde.errors import UsageError
from tensonde.model.stop import Resume
from tensonde.protocol.messages import Request
from tensonde.session.lines import check_line
from tensonde.session.serving.answers import Answer
from tensonde.session.serving.commands import Lines
from tensonde.watch.pattern import Pattern

if TYPE_CHECKING:
    from tensonde.session.serving.service import Service

LARGEST_PART = 8 << 20
LARGEST_DIGEST = 32 << 20
MOST_DIGESTS = 64
KINDS = {"continue", "step", "next", "nextop", "until", "finish", "quit"}


def resume(service: Service, request: Request) -> Answer:
    given = request.arguments
    kind = str(given.get("kind", "continue"))
    if kind not in KINDS:
        raise UsageError(f"{kind!r} is no way to go on; it may be {', '.join(sorted(KINDS))}.")
    sites = str(given.get("sites") or "")
    if kind == "until":
        if not sites:
            raise UsageError("until which site? For example until blocks.3.attn:grad.")
        Pattern.parse(sites)
    service.watchlist.apply()
    if "limit" in given:
        service.session.gate.request_pause_at(given["limit"])
    plan = Resume(kind, max(1, int(given.get("count") or 1)), sites)  # type: ignore[arg-type]
    return Answer({"accepted": True, "state": "running", "step": service.session.steps.step}, plan=plan)


def command(service: Service, request: Request) -> Answer:
    """A command may ask back. The next command is then the reply, and gets the answer that the first one has not got yet."""
    asking, stop = request, service.desk.stop
    assert stop is not None

    def ask(said: Lines, question: str) -> str:
        nonlocal asking
        service.answers.give(asking, {"output": said, "resumed": False, "prompt": question})
        while True:
            following = service.next()
            if following is None:
                raise EOFError
            if following.kind == "command":
                asking = following
                return str(following.arguments.get("line", ""))
            if following.kind == "resume":
                service.answers.refuse(following, f"a command waits for an answer to {question!r}; give it first.")
            else:
                service.serve(following)

    said, plan = service.commands.run(str(request.arguments.get("line", "")), stop, ask)
    service.watchlist.take_over()
    if plan is not None and plan.kind != "quit":
        service.watchlist.apply()
    result = {"output": said, "resumed": plan is not None, "prompt": None}
    if plan is not None and asking.arguments.get("together"):
        return Answer({**result, "plan": asdict(plan)}, to=asking)
    return Answer(result, plan=plan, to=asking)


def complete(service: Service, request: Request) -> Answer:
    text = str(request.arguments.get("text", ""))
    length, options = service.commands.complete(text)
    return Answer({"start": len(text) - length, "options": options[:200]})


def add_breakpoint(service: Service, request: Request) -> Answer:
    given = request.arguments
    words = {name: given[name] for name in ("sites", "file", "line", "condition", "once") if given.get(name)}
    if words.get("line"):
        check_line(str(words.get("file", "")), int(words["line"]))
    return Answer(asdict(service.session.gate.add_breakpoint(**words)))


def remove_breakpoint(service: Service, request: Request) -> Answer:
    gate, id = service.session.gate, request.arguments["id"]
    if not gate.remove_breakpoint(int(id)):
        raise UsageError(f"there is no breakpoint {id}; there are: {', '.join(map(str, gate.breakpoints)) or 'none'}.")
    return Answer({})


def tensors(service: Service, request: Request) -> Answer:
    return Answer(service.inspector.addresses())


def shape(service: Service, request: Request) -> Answer:
    given = request.arguments
    found, dtype = service.inspector.shape(str(given["address"]), before=bool(given.get("before")))
    return Answer({"shape": list(found), "dtype": dtype})


def tensor(service: Service, request: Request) -> Answer:
    given, stop = request.arguments, service.desk.stop
    assert stop is not None
    before, index = bool(given.get("before")), index_in(given.get("index") or [])
    value = service.inspector.value(str(given["address"]), before=before, index=index)
    array = np.ascontiguousarray(value.array)
    if array.nbytes > LARGEST_PART:
        raise UsageError(f"{array.nbytes} bytes are too many for one answer; {LARGEST_PART} are the most.")
    facts = {
        "address": value.address, "shape": list(array.shape), "numpy": array.dtype.str, "dtype": value.dtype,
        "note": value.note, "step": stop.moment.step if value.step is None else value.step,
    }  # fmt: skip
    return Answer(facts, array.tobytes())


def digests(service: Service, request: Request) -> Answer:
    """Of those that are at hand; large ones are left out, so that a look costs no more than a moment."""
    stop, found, rows = service.desk.stop, [], []
    assert stop is not None
    known = set(service.inspector.addresses())
    for address in list(request.arguments.get("addresses") or [])[:MOST_DIGESTS]:
        if address not in known and not str(address).endswith(":value"):  # a buffer may not have been seen yet
            continue
        try:
            shape, _ = service.inspector.shape(str(address))
            if math.prod(shape) > LARGEST_DIGEST:
                continue
            value = service.inspector.value(str(address))
        except UsageError:
            continue
        if value.array.dtype.kind not in "biuf":
            continue
        rows.append(digest_array(value.array).tobytes())
        found.append(
            {
                "address": value.address, "shape": list(value.shape), "dtype": value.dtype, "note": value.note,
                "step": stop.moment.step if value.step is None else value.step,
            }
        )  # fmt: skip
    return Answer(found, b"".join(rows))


def model(service: Service, request: Request) -> Answer:
    inspector = service.inspector
    modules = [
        {"name": node.name, "type": node.type, "training": node.training, "root": node.is_root}
        for node in inspector.modules()
    ]
    values = [address.removesuffix(":value") for address in inspector.addresses() if address.endswith(":value")]
    return Answer({"modules": modules, "parameters": values})


def assign(service: Service, request: Request) -> Answer:
    given = request.arguments
    index = index_in(given.get("index") or [])
    return Answer({"message": service.inspector.assign(str(given["address"]), index, float(given["value"]))})


def index_in(parts: list[Any]) -> tuple[Any, ...]:
    """Numbers, and [start, stop, step] for slices."""
    return tuple(slice(*part) if isinstance(part, list) else int(part) for part in parts)
