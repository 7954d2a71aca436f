"""Memory has run out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tensonde.diagnose.exceptions import Cause, Event, family
from tensonde.model.memory import size

_KINDS = ("parameters", "gradients", "optimizer", "buffers", "data", "held", "rest")
_NAMES = {"optimizer": "the state of optimizers", "held": "variables of the program", "rest": "activations"}


@family("out-of-memory")
def out_of_memory(event: Event) -> Cause | None:
    """A device, or the host, has no memory left. The finding says what holds it: parameters, gradients, optimizer
    state, data, variables of the program, and the rest, mostly activations waiting for the backward pass. It also
    says how memory grew from step to step. Tensors collected in a list together with their graphs are named first,
    because each keeps everything that its step computed. To see what would fit, Tensonde walks through the forward
    and backward pass once more with tensors that have shapes but no values, with the whole batch and with half of it:
    the finding gives the largest batch, and modules whose checkpointing would be enough.
    """
    found = event.get("memory")
    if found is None:
        return None
    kinds = {kind: int(found.get(kind) or 0) for kind in _KINDS}
    shown = [
        f"{_NAMES.get(kind, kind)} {size(amount)}"
        for kind, amount in sorted(kinds.items(), key=lambda one: -one[1])
        if amount
    ]
    title = f"{found['device']} is out of memory: {size(found['used'])} are in use ({', '.join(shown[:3])})"
    evidence = dict(_evidence(found, kinds))
    keeper = _keeper(found)
    if keeper is not None:
        each = f" Memory grows by {size(found['growth'])} per step." if found.get("growth") else ""
        if keeper["graphs"]:
            what = f"`{keeper['name']}` holds {keeper['graphs']} tensors with their graphs, so each keeps everything its step computed"
            mend = "put .item() or .detach() into it"
        else:
            what = f"`{keeper['name']}` holds {keeper['tensors']} tensors on the device, {size(keeper['bytes'])}"
            mend = "move them to the CPU, or keep fewer"
        return Cause(
            title=title, advice=f"{what}: {mend}.{each}", line=keeper["line"], evidence=evidence, confidence=0.85
        )
    changes = list(_changes(found))
    if changes:
        advice = f"The smallest change that fits: {'; or '.join(changes[:3])}."
        return Cause(title=title, advice=advice, evidence=evidence, confidence=0.8)
    if kinds["rest"] >= max(kinds.values()):
        rows = found["batch"][0] if found.get("batch") else None
        now = f" (now {rows})" if rows else ""
        advice = f"Most of it waits for the backward pass: use a smaller batch{now}, autocast, or torch.utils.checkpoint around the largest module."
    else:
        advice = "Most of it does not depend on the batch: use a smaller model or optimizer state, lower precision, or several devices."
    return Cause(title=title, advice=advice, evidence=evidence, confidence=0.6)


def _keeper(found: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A variable that collects: with graphs, or much without them."""
    for holder in found["holders"]:
        if holder["line"] is not None and (
            holder["graphs"] > 1 or (holder["tensors"] > 2 and holder["bytes"] > 0.2 * found["used"])
        ):
            return dict(holder)
    return None


def _changes(found: Mapping[str, Any]) -> Iterator[str]:
    """What would fit, the least intrusive first."""
    fitting, room = found.get("fitting") or {}, found.get("capacity")
    peak = fitting.get("peak")
    if not peak or not room or peak <= room:
        return
    missing = peak - room
    saving = sorted(
        (part for part in fitting["modules"] if part["bytes"] > missing), key=lambda part: int(part["bytes"])
    )
    largest = fitting.get("fits")
    if largest:
        yield f"batches of {largest} (now {fitting['batch']})"
    if saving:
        yield f"torch.utils.checkpoint around {saving[0]['module']}, whose activations take {size(saving[0]['bytes'])}"
    elif sum(part["bytes"] for part in fitting["modules"]) > missing:
        names = []
        for part in fitting["modules"]:
            names.append(part["module"])
            missing -= part["bytes"]
            if missing < 0:
                break
        yield f"torch.utils.checkpoint around {', '.join(names)}"
    if fitting["autocast"] > peak - room:
        yield "autocast, which may halve the activations"
    if largest == 0 and not saving:
        yield "a smaller model or optimizer state, or several devices: not even one sample fits"


def _evidence(found: Mapping[str, Any], kinds: Mapping[str, int]) -> Iterator[tuple[str, Any]]:
    if found.get("wanted"):
        yield "wanted", size(found["wanted"])
    if found.get("capacity"):
        yield "capacity", size(found["capacity"])
    for kind, amount in kinds.items():
        yield kind, size(amount)
    for holder in found["holders"][:4]:
        yield f"held.{holder['name']}", f"{size(holder['bytes'])} in {holder['tensors']} tensors"
    history = found.get("history") or []
    if len(history) > 1:
        yield (
            "at the ends of steps",
            ", ".join(f"{step}: {size(used)}" for step, used in history[:: -(-len(history) // 6)]),
        )
    fitting = found.get("fitting") or {}
    if fitting.get("peak"):
        yield "needed with this batch", size(fitting["peak"])
        for part in fitting["modules"][:4]:
            yield f"activations.{part['module']}", size(part["bytes"])
    elif fitting.get("why"):
        yield "what would fit is not known", fitting["why"]
