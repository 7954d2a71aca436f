"""Tensors, by the tile."""

from __future__ import annotations

import bisect
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from tensonde.errors import UsageError
from tensonde.server import models, tensor
from tensonde.server.hub import Hub
from tensonde.server.live import LiveRank
from tensonde.server.livetensor import LiveTensor
from tensonde.server.numbers import Json
from tensonde.server.place import Place
from tensonde.server.refusals import NotNow, Refusal
from tensonde.server.routes.reading import PLACE, At, Step, TheHub
from tensonde.server.tensor import Tensor

router = APIRouter(prefix="/api", tags=["tensors"])


def find(place: Place, address: str, step: int | None, *, before: bool = False) -> Tensor:
    """The tensor at hand: in the stopped training, or as it was captured. Raises NotNow with what to do where there is none."""
    live = place.live
    if live is not None and live.connected and live.stop is not None:
        try:
            return at_stop(live, address, step, before=before)
        except Refusal as refused:
            if before or tensor.stored(place, address, step) is None:
                raise (tensor.not_kept(place, address) or refused) from None
    found = tensor.stored(place, address, step)
    if found is None:
        raise tensor.missing(place, address, step)
    return found


def at_stop(live: LiveRank, address: str, step: int | None, *, before: bool) -> Tensor:
    """The latest value, or the one of the step before where that was asked for."""
    found = LiveTensor(live, address, before=before)
    if step is None or before or found.step == step:
        return found
    older = LiveTensor(live, address, before=True)
    if older.step == step:
        return older
    raise NotNow(f"{address} is kept for step {found.step}, not for step {step}.")


def second(hub: Hub, place: Place, first: Tensor, against: str, address: str) -> tuple[str, Tensor, Place]:
    """What to compare with: `previous`, `step:N`, or `run:RUN/RANK/STEP`, the same step where none is given; and where it is."""
    name = address or first.address
    kind, _, rest = against.partition(":")
    if kind == "previous":
        return (*previous(place, first, name), place)
    if kind == "step" and rest.isdecimal():
        return f"step {rest}", find(place, name, int(rest)), place
    parts = rest.split("/")
    if kind == "run" and len(parts) in (2, 3):
        other = hub.place(parts[0], parts[1])
        step = int(parts[2]) if len(parts) == 3 and parts[2].isdecimal() else first.step
        return (*elsewhere(other, name, step), other)
    raise UsageError(f"against is {against!r}; it may be previous, step:N, or run:RUN/RANK/STEP.")


def elsewhere(place: Place, name: str, step: int | None) -> tuple[str, Tensor]:
    """Another run at this step; where it kept none of that step, at the nearest that it kept, which the label says."""
    run = place.folder.parent.name if place.folder is not None else place.run
    where = f"{run} {place.name}" if place.rank else run
    try:
        found = find(place, name, step)
        return f"{where}, step {found.step}", found
    except Refusal as problem:
        steps = tensor.steps_of(place, name)
        if not steps or step is None:
            raise type(problem)(f"{where}: {problem}") from None
    nearest = min(steps, key=lambda kept: (abs(kept - step), kept))
    return f"{where}, step {nearest}, the nearest to {step} that it kept", find(place, name, nearest)


def previous(place: Place, first: Tensor, name: str) -> tuple[str, Tensor]:
    """The step before; where that was not kept, the last one that was, which its label says."""
    steps = [step for step in tensor.steps_of(place, name) if first.step is None or step < first.step]
    if steps and first.step is not None and steps[-1] == first.step - 1:
        return f"step {steps[-1]}, the step before", find(place, name, steps[-1])
    try:
        found = find(place, name, None if first.step is None else first.step - 1, before=True)
        named = found.step is not None and found.step != first.step  # a parameter's last value has no step of its own
        return f"step {found.step}, the step before" if named else "the step before", found
    except Refusal:
        if not steps:
            raise
    return f"step {steps[-1]}, the last one kept before step {first.step}", find(place, name, steps[-1])


@router.get(PLACE + "/tensor", response_model=models.Tile)
def tile(
    at: At, hub: TheHub, address: str, step: Step = None, index: str = "", rows: str = "", cols: str = "",
    overview: Annotated[int, Query(ge=0, le=256)] = 0, stride: Annotated[int, Query(ge=1)] = 1,
    against: str = "", against_address: str = "",
) -> Any:  # fmt: skip
    """A part of a tensor, and how it differs from the same part of another one."""
    found = find(at, address, step)
    other: tuple[str, Tensor] | None = None
    note, steps = "", list[int]()
    if against:
        try:
            label, compared, there = second(hub, at, found, against, against_address)
            other, steps = (label, compared), tensor.steps_of(there, against_address or address)
        except Refusal as problem:
            note = str(problem)  # the tensor itself can be shown all the same
    shown = tensor.tile(at, found, index=index, rows=rows, cols=cols, overview=overview, stride=stride, other=other)
    if shown["against"] is not None:
        shown["against"] |= {"step": other[1].step if other is not None else None, "steps": steps}
    return Json({**shown, "note": "; ".join(part for part in (shown["note"], note) if part)})


@router.get(PLACE + "/tensor/histogram", response_model=models.TensorHistogram)
def histogram(
    at: At, address: str, step: Step = None, index: str = "", bins: Annotated[int, Query(ge=1, le=1000)] = 64
) -> Any:
    """How the values of a tensor, or of a part of it, are spread."""
    return Json(tensor.histogram(find(at, address, step), index, bins))


@router.get(
    PLACE + "/tensor.npy", response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "a .npy file"}},
)  # fmt: skip
def npy(at: At, address: str, step: Step = None, index: str = "") -> StreamingResponse:
    """A tensor, or a part of it, as a .npy file."""
    found = find(at, address, step)
    length, pieces = tensor.npy(found, index)
    name = quote(f"{address.replace('/', '_').replace(':', '.')}-step{found.step}.npy")
    headers = {"content-length": str(length), "content-disposition": f"attachment; filename*=UTF-8''{name}"}
    return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)


@router.get(PLACE + "/tensors", response_model=list[models.TensorAtHand])
def tensors(at: At, name: str = "") -> Any:
    """What is at hand, of all nodes or of one: kept and dumped values and, while the training is stopped, everything that is alive."""
    found: dict[str, dict[str, Any]] = {}
    kept = [(value.site, value.moment.step, value.shape, value.dtype) for value in at.values]
    if at.recorded is not None:
        for entries in at.recorded.dump.all().values():
            kept += [(entry.site, entry.step, entry.shape, entry.dtype) for entry in entries]
    for address, step, shape, dtype in kept:
        entry = found.setdefault(
            address, {"address": address, "steps": [], "live": False, "shape": list(shape), "dtype": dtype}
        )
        if step not in entry["steps"]:
            bisect.insort(entry["steps"], step)
    live = at.live
    if live is not None and live.connected and live.stop is not None:
        known = at.addresses
        for address in live.ask_now("tensors").result:
            site = known.get(address)
            facts = {"shape": list(site.shape), "dtype": site.dtype} if site is not None else {"shape": [], "dtype": ""}
            found.setdefault(address, {"address": address, "steps": [], **facts})["live"] = True
    shown = [entry for entry in found.values() if not name or entry["address"].rpartition(":")[0] == name]
    return Json(shown)
