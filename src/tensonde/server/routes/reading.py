"""What was recorded: the same for live and finished runs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from tensonde.errors import UsageError
from tensonde.server import atstop, models, reading
from tensonde.server.conditions import catalogue
from tensonde.server.graph import graph
from tensonde.server.hub import Hub
from tensonde.server.node import node
from tensonde.server.numbers import Json
from tensonde.server.place import Place
from tensonde.server.questions import questions
from tensonde.server.ranks import side_by_side
from tensonde.server.refusals import NotFound
from tensonde.server.source import excerpt
from tensonde.version import __version__

router = APIRouter(prefix="/api", tags=["reading"])
PLACE = "/runs/{run}/{rank}"


def find_hub(request: Request) -> Hub:
    hub: Hub = request.app.state.hub
    return hub


def find_place(run: str, rank: str, request: Request) -> Place:
    return find_hub(request).place(run, rank)


At = Annotated[Place, Depends(find_place)]
TheHub = Annotated[Hub, Depends(find_hub)]
Step = Annotated[int | None, Query(ge=0, description="nothing: the latest")]
First = Annotated[int | None, Query(alias="from", ge=0)]
Last = Annotated[int | None, Query(alias="to", ge=0)]


def span(first: int | None, last: int | None) -> tuple[int, int] | None:
    return None if first is None and last is None else (first or 0, 1 << 62 if last is None else last)


@router.get("/health", response_model=models.Version, tags=["hub"])
def health() -> Any:
    """The hub is there; needs no token."""
    return {"tensonde": __version__}


@router.get("/conditions", response_model=models.Conditions, tags=["watchpoints"])
def conditions() -> Any:
    """The named conditions and the fields of the watch language."""
    return Json(catalogue())


@router.get("/runs", response_model=list[models.Run])
def runs(hub: TheHub) -> Any:
    """All runs, newest first."""
    return Json(hub.runs())


@router.get("/runs/{run}/ranks", response_model=models.Ranks)
def ranks(
    run: str, hub: TheHub, site: str = "", field: str = "norm", points: Annotated[int, Query(ge=1, le=2000)] = 200
) -> Any:
    """All ranks of a run side by side; with a site, that one on each of them."""
    found = next((one for one in hub.runs() if one["id"] == run), None)
    if found is None:
        raise NotFound(f"there is no run {run!r} here; GET /api/runs lists them.")
    places = [hub.place(run, rank["name"]) for rank in found["ranks"]]
    return Json(side_by_side(places, found["ranks"], site, field, points))


@router.get(PLACE + "/sites", response_model=list[models.Site])
def sites(at: At) -> Any:
    """Every place where a tensor was observed, in the order first seen."""
    return Json([reading.site_out(site) for site in at.sites.values()])


@router.get(PLACE + "/graph", response_model=models.Graph)
def the_graph(at: At, source: str | None = None, phase: str = "forward") -> Any:
    """The ops of a traced step nested in modules, by column; the first trace unless another source is asked for."""
    return Json(graph(at, source, phase))


@router.get(PLACE + "/status", response_model=models.Status)
def status(at: At, step: Step = None, field: str = "health") -> Any:
    """How every site is at a step, by its latest digest at or before it."""
    return Json(reading.status(at, step, field))


@router.get(PLACE + "/digests", response_model=models.Digests)
def digests(
    at: At, site: str, fields: str = "norm", first: First = None, last: Last = None,
    points: Annotated[int, Query(ge=1, le=100_000)] = 500,
) -> Any:  # fmt: skip
    """The history of a site's digest fields, thinned to about `points` without losing extremes."""
    names = [name.strip() for name in fields.split(",") if name.strip()]
    if not names:
        raise UsageError("fields is empty; give some, e.g. fields=min,max,norm.")
    return Json(reading.digests(at, site, names, span(first, last), points))


@router.get(PLACE + "/latest", response_model=list[models.Latest])
def latest(at: At, site: str = "", step: Step = None, limit: Annotated[int, Query(ge=1, le=100_000)] = 200) -> Any:
    """The latest digest of every site that matches a pattern, in full."""
    return Json(reading.latest_digests(at, site, step, limit))


@router.get(PLACE + "/histograms", response_model=models.Histograms)
def histograms(
    at: At, site: str, first: First = None, last: Last = None, points: Annotated[int, Query(ge=1, le=10_000)] = 200
) -> Any:
    """Magnitudes of a site over the steps."""
    return Json(reading.histograms(at, site, span(first, last), points))


@router.get(PLACE + "/scalars", response_model=models.ScalarNames | models.Scalars)
def scalars(at: At, name: str | None = None, points: Annotated[int, Query(ge=1, le=1_000_000)] = 1000) -> Any:
    """The names of the numbers of each step; with a name, that one's values."""
    return Json({"names": sorted(at.scalars())} if name is None else reading.scalars(at, name, points))


@router.get(PLACE + "/hits", response_model=models.Hits)
def hits(at: At, after: int = -1, limit: Annotated[int, Query(ge=1, le=100_000)] = 1000) -> Any:
    """Hits in execution order, those after an `ord`."""
    return Json(reading.hits(at, after, limit))


@router.get(PLACE + "/findings", response_model=list[models.Finding])
def findings(at: At) -> Any:
    """What the diagnosis says, the most likely root cause first."""
    return Json(reading.findings(at))


@router.get(PLACE + "/questions", response_model=list[models.Question])
def the_questions(at: At) -> Any:
    """What experiments asked of the training, with their answers: the health table."""
    return Json(questions(at))


@router.get(PLACE + "/memory", response_model=models.Memory | None)
def the_memory(at: At) -> Any:
    """What a step takes of memory, and when; null where `tensonde check --memory` did not look."""
    return Json(reading.memory(at))


@router.get(PLACE + "/events", response_model=models.Events)
def events(at: At, after: int = -1, limit: Annotated[int, Query(ge=1, le=100_000)] = 1000) -> Any:
    """What else happened."""
    return Json(reading.events(at, after, limit))


@router.get(PLACE + "/source", response_model=models.Excerpt)
def source(at: At, file: str, line: int = 0, around: Annotated[int, Query(ge=0, le=2000)] = 8) -> Any:
    """Lines of a source file of the run; without a line, all of it."""
    return Json(excerpt(at, file, line, around))


@router.get(PLACE + "/node", response_model=models.Node)
def the_node(at: At, name: str, step: Step = None) -> Any:
    """One node of the graph, with what went in and came out: as it is now, where the training is stopped and the tensors are at hand."""
    found = node(at, name, step)
    return Json(atstop.refresh(at, found) if step is None else found)


@router.get(PLACE + "/settings", response_model=models.Settings)
def settings(at: At) -> Any:
    """Optimizers and modules with what was set for them."""
    return Json(reading.settings(at))
