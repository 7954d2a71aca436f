"""Watchpoints and patterns; on recordings, too."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from tensonde.server import checking, models
from tensonde.server.numbers import Json
from tensonde.server.routes.reading import PLACE, At

router = APIRouter(prefix="/api", tags=["watchpoints"])


@router.get(PLACE + "/watchpoints", response_model=list[models.Watchpoint])
def watchpoints(at: At) -> Any:
    """The watchpoints of a live session, or those that a recording was made with."""
    if at.live is not None and at.live.connected and not at.live.finished:
        return Json([checking.described(at, entry) for entry in at.live.ask_now("watchpoints").result])
    return Json(checking.shown(at, checking.recorded_watchpoints(at)))


@router.post(PLACE + "/watchpoints/recheck", response_model=models.Rechecked)
def recheck(at: At, request: models.Recheck) -> Any:
    """What a watchpoint would have found in everything that was recorded."""
    return Json(checking.recheck(at, request.sites, request.condition, request.id))


@router.post(PLACE + "/match", response_model=models.Match)
def match(at: At, request: models.MatchRequest) -> Any:
    """Which sites a pattern means."""
    return Json(checking.match(at, request.pattern))
