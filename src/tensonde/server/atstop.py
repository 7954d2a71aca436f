"""What a stopped training itself can say about its tensors and modules, which no recording knows yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tensonde.digest.layout import ROW
from tensonde.server.health import health_of_row
from tensonde.server.place import Place
from tensonde.server.reading import digest_out
from tensonde.server.refusals import Refusal

Json = dict[str, Any]
AT_ONCE = 64


def is_stopped(place: Place) -> bool:
    live = place.live
    return live is not None and live.connected and live.stop is not None


def model(place: Place) -> Json | None:
    """Modules and parameters as they are now; None where nobody can say. Not in the event loop's thread."""
    if place.live is None or not is_stopped(place):
        return None
    try:
        found: Json = place.live.ask_now("model").result
        return found
    except Refusal:
        return None


def digests(place: Place, addresses: Iterable[str]) -> dict[str, Json]:
    """By address, a port with the digest of the tensor as it is now. Not in the event loop's thread."""
    wanted = list(dict.fromkeys(addresses))[:AT_ONCE]
    if place.live is None or not is_stopped(place) or not wanted:
        return {}
    try:
        reply = place.live.ask_now("digests", addresses=wanted)
        rows = np.frombuffer(reply.content, ROW)
    except (Refusal, ValueError):
        return {}
    return {
        facts["address"]: {
            "shape": facts["shape"], "dtype": facts["dtype"], "digest": digest_out(row), "step": facts["step"],
            "live": True, "note": facts.get("note", ""), "health": health_of_row(facts["address"], row),
        }
        for facts, row in zip(reply.result, rows, strict=False)
    }  # fmt: skip


def refresh(place: Place, node: Json) -> Json:
    """A node with the numbers of this stop, where its tensors are at hand."""
    if not is_stopped(place):
        return node
    ports = [*node["outputs"], *node["inputs"], *node["parameters"], *node["around"].values()]
    found = digests(place, [port["address"] for port in ports if port["address"]])
    for port in ports:
        port.update(found.get(port["address"], {}))
    return node
