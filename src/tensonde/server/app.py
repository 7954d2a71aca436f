"""The hub as an ASGI application."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Route

from tensonde.errors import RecordingError, UsageError
from tensonde.server import models
from tensonde.server.comparisons import Comparisons
from tensonde.server.hub import Hub
from tensonde.server.refusals import Refusal
from tensonde.server.routes import acting, comparing, reading, sockets, static, tensors, watching
from tensonde.server.safety import BodyLimit, Safety
from tensonde.version import __version__

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": models.Problem, "description": meaning}
    for code, meaning in (
        (401, "no token"), (403, "wrong Host or Origin"), (404, "there is no such run, rank, site or file"),
        (409, "not now: the sentence says when or how"), (413, "the request is too large"), (422, "wrong use"),
    )
}  # fmt: skip


def create_app(hub: Hub, mounts: Mapping[str, Any] | None = None) -> FastAPI:
    """Without its guards: see `guarded`. `mounts` are other ASGI applications by their path."""
    app = FastAPI(
        title="Tensonde hub", version=__version__, openapi_url="/api/openapi.json", docs_url=None, redoc_url=None,
        description="Live trainings and recordings. Everything about a place is under /api/runs/{run}/{rank}.",
        responses=_PROBLEMS,
    )  # fmt: skip
    app.state.hub = hub
    app.state.comparisons = Comparisons()
    for path, other in (mounts or {}).items():
        app.router.routes.append(Route(path, other))
    for router in (
        sockets.router,
        comparing.router,
        reading.router,
        tensors.router,
        acting.router,
        watching.router,
        static.router,
    ):
        app.include_router(router)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(UsageError, _wrong_use)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _failed)
    return app


def guarded(app: Any, *, token: str, names: Iterable[str]) -> Any:
    return Safety(BodyLimit(app), token=token, names=names)


def _answer(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status)


async def _refused(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, Refusal)
    return _answer(problem.status, str(problem))


async def _wrong_use(request: Request, problem: Exception) -> JSONResponse:
    return _answer(404 if isinstance(problem, RecordingError) else 422, str(problem))


async def _http(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, HTTPException)
    return _answer(problem.status_code, str(problem.detail))


async def _invalid(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, RequestValidationError)
    parts = []
    for error in problem.errors()[:3]:
        where = ".".join(str(part) for part in error["loc"] if part not in ("query", "body", "path"))
        parts.append(f"{where or 'the request'}: {error['msg']}")
    return _answer(422, "; ".join(parts) + ".")


async def _failed(request: Request, problem: Exception) -> JSONResponse:
    return _answer(500, f"the hub failed here ({type(problem).__name__}: {problem}); please report this.")
