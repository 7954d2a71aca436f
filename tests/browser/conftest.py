"""A real Chromium on a real hub with real trainings. Skipped where there is no Chromium, Playwright or built UI."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
TOKEN = "a-token-for-the-tests"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TOASTS = """
    window.toasts = [];
    new MutationObserver(() => {
      const said = document.querySelector('[data-testid=toast]')?.textContent;
      if (said && window.toasts.at(-1) !== said) window.toasts.push(said);
    }).observe(document, { subtree: true, childList: true, characterData: true });
"""
"""Keeps every message that was shown, also those that have gone since."""


def chromium() -> str | None:
    return next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = ""
    if chromium() is None:
        reason = "no chromium on PATH"
    elif not (SOURCE / "tensonde" / "server" / "web" / "index.html").is_file():
        reason = "the web UI is not built (make web)"
    else:
        try:
            import playwright  # noqa: F401
        except ImportError:
            reason = "playwright is not installed"
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.xdist_group("browser"))
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(400))
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


def wait_until(what: Callable[[], Any], seconds: float = 90) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")


@dataclass
class Program:
    """A process of `python -m tensonde`, whose output is kept."""

    process: subprocess.Popen[str]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, pattern: str, seconds: float = 120) -> re.Match[str]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := re.search(pattern, self.said):
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"never said {pattern!r}; it said:\n{self.said}")

    def stop(self, with_signal: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@dataclass
class Desk:
    """A folder to work in, with programs that end with the test."""

    folder: Path
    programs: list[Program] = field(default_factory=list)

    def tensonde(self, *arguments: str, **environment: str) -> Program:
        log = self.folder / f"program{len(self.programs)}.log"
        own = self.folder / "home"
        own.mkdir(exist_ok=True)
        env = {
            **os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1",
            "HOME": str(own), "XDG_RUNTIME_DIR": str(own), "XDG_STATE_HOME": str(own), "XDG_CACHE_HOME": str(own),
            "OMP_NUM_THREADS": "1", **environment,
        }  # fmt: skip
        with log.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "tensonde", *arguments],
                cwd=self.folder, env=env, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        self.programs.append(Program(process, log))
        return self.programs[-1]

    def script(self, name: str, text: str) -> str:
        (self.folder / name).write_text(textwrap.dedent(text))
        return name

    def hub(self, port: int = 0, token: str = TOKEN, *given: str) -> tuple[Program, str]:
        hub = self.tensonde("ui", "--port", str(port), "--token", token, "--no-open", *(given or (".",)))
        return hub, hub.wait_for(r"the UI is at (\S+)")[1]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    for program in reversed(made.programs):
        program.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def page(browser: Any, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1366, "height": 768}, reduced_motion="reduce")
    context.set_default_timeout(90_000)  # a busy machine takes its time to import torch
    context.add_init_script(TOASTS)
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    with contextlib.suppress(Exception):
        opened.screenshot(path=tmp_path / "last.png")  # for whoever looks into a failure
    context.close()
    assert not errors, f"the page raised: {errors}"


@pytest.fixture
def boxes(page: Any) -> Callable[[], dict[str, Any]]:
    """What the canvas of the graph shows, by name."""
    return lambda: {box["name"]: box for box in page.evaluate("window.__tensonde.boxes()")}
