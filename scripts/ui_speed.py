"""How long the browser takes to load and unfold graphs of several sizes: the table of docs/ui.md.

Run it on an otherwise idle machine: `python scripts/ui_speed.py`. Needs Playwright, a Chromium on PATH and a built UI.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path.insert(0, str(TESTS / "browser"))
SIZES = (289, 2_000, 50_000, 100_000)
ROUNDS = 3
LOAD = """async (run) => {
  const start = performance.now();
  window.__tensonde.app.open(run, 'rank0');
  while (!window.__tensonde.app.place?.outline || !window.__tensonde.boxes().length) await new Promise((r) => setTimeout(r, 1));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return { load: performance.now() - start, nodes: window.__tensonde.app.place.outline.n };
}"""
UNFOLD_ALL = """async () => {
  const start = performance.now();
  const done = await window.__tensonde.graph().openAll(true);
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return done ? performance.now() - start : null;
}"""


class Served:
    """The graph that the hub answers with, as an ASGI application."""

    body = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(self.body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def main() -> None:
    from playwright.sync_api import sync_playwright
    from synthetic_graph import synthetic
    from test_large_graph import GOLDEN, MEASURE

    from conftest import ARGUMENTS, chromium

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        shutil.copytree(GOLDEN, Path(folder) / "demo")
        served = Served()
        url = serve(Path(folder) / "demo", served)
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        try:
            for size in SIZES:
                graph = synthetic(size)
                served.body = json.dumps(graph).encode()
                names, scopes = graph["nodes"]["name"], graph["scopes"]["name"]
                stage = scopes[len(scopes) // 2].rsplit(".", 1)[0]
                asked = {"stage": stage, "deep": names[7 * len(names) // 10], "scope": "model"}
                best: dict[str, float] = {}
                for _ in range(ROUNDS):
                    for name, value in one(browser, url, asked, MEASURE).items():
                        best[name] = min(best.get(name, value), value)
                figures = {name: round(value, 1) for name, value in best.items()}
                print(size, figures, "load of the machine", round(os.getloadavg()[0], 1), flush=True)
        finally:
            browser.close()


def serve(recording: Path, served: Served) -> str:
    """The hub in a thread of this process, with another graph in place of its own."""
    import uvicorn

    from tensonde.server.app import create_app
    from tensonde.server.hub import Hub
    from tensonde.server.library import Library

    app = create_app(Hub(Library([recording])), mounts={"/api/runs/{run}/{rank}/graph": served})
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"


def one(browser: Any, url: str, asked: dict[str, str], measure: str) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1366, "height": 768}, reduced_motion="reduce")
    context.set_default_timeout(90_000)
    page = context.new_page()
    page.goto(url)
    page.get_by_test_id("run").first.wait_for()
    found: dict[str, float] = page.evaluate(LOAD, page.get_by_test_id("run").first.get_attribute("data-run"))
    found |= page.evaluate(measure, asked)
    whole = page.evaluate(UNFOLD_ALL)
    context.close()
    return found if whole is None else {**found, "unfold_all": whole}


if __name__ == "__main__":
    main()
