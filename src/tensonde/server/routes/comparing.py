"""Two recordings side by side."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from tensonde.errors import UsageError
from tensonde.server import models
from tensonde.server.comparisons import Comparisons
from tensonde.server.numbers import Json
from tensonde.server.place import Place
from tensonde.server.routes.reading import TheHub

router = APIRouter(prefix="/api", tags=["comparing"])
Side = Annotated[str, Query(description="a run and one of its ranks: RUN/RANK")]


@router.get("/compare", response_model=models.Comparison)
async def compare(a: Side, b: Side, hub: TheHub, request: Request) -> Any:
    """Where two recorded trainings part, and how the difference spreads from there."""

    def place(given: str) -> Place:
        run, slash, rank = given.rpartition("/")
        if not slash:
            raise UsageError(f"{given!r} names no rank; give RUN/RANK, e.g. {given}/rank0.")
        return hub.place(run, rank)

    comparisons: Comparisons = request.app.state.comparisons
    pending = await asyncio.to_thread(lambda: comparisons.of(place(a), place(b)))
    # A browser that goes away does not take the answer from another one that waits for it.
    return Json(await asyncio.shield(asyncio.wrap_future(pending)))
