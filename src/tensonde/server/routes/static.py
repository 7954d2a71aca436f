"""The browser's files, as `make web` built them."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response

WEB = Path(__file__).resolve().parent.parent / "web"
NOT_BUILT = """<!doctype html><meta charset="utf-8"><title>Tensonde</title>
<style>body{font:16px system-ui;max-width:40em;margin:4em auto;padding:0 1em}code{background:#8883;padding:.1em .3em}</style>
<h1>The web UI is not built</h1><p>This is a development checkout: run <code>make web</code> and load this page again.</p>
<p>The API is there: <a href="/api/openapi.json">/api/openapi.json</a>.</p>"""

router = APIRouter(include_in_schema=False)


@router.get("/{path:path}")
def page(path: str) -> Response:
    """A file of the UI; any other path is the UI's own page."""
    if path.startswith("api/"):
        return Response(
            b'{"error": "there is no such endpoint; /api/openapi.json lists them."}', 404, media_type="application/json"
        )
    index = WEB / "index.html"
    if not index.is_file():
        return HTMLResponse(NOT_BUILT)
    # Looked up among the files that are there, so that no path of a request reaches the file system.
    files = {file.relative_to(WEB).as_posix(): file for file in WEB.rglob("*") if file.is_file()}
    wanted = files.get(path, index)
    fixed = wanted.relative_to(WEB).parts[0] == "assets"
    return FileResponse(wanted, headers={"cache-control": "max-age=31536000, immutable" if fixed else "no-cache"})
