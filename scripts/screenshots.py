"""Makes docs/images/*.png from a real run of examples/tiny_gpt.py under `tensonde run --ui`: `make screenshots`.

Needs Playwright and a Chromium on PATH. What a picture shows is reached as a user reaches it: by clicks and links.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "images"
LARGEST = 240_000
MINDSPORE = ROOT / ".venv-mindspore" / "bin" / "python"
STARTED: list[subprocess.Popen[str]] = []
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def main() -> None:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("screenshots: no chromium on PATH")
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        shutil.copy(ROOT / "examples" / "tiny_gpt.py", folder)
        _, url = start(folder, "ui", "--no-open", ".")
        try:
            live(browser, folder, url)
            finished(browser, url)
            compared(browser, folder, url)
            if MINDSPORE.exists():
                compiled(browser, folder, url)
        finally:
            browser.close()
            for process in reversed(STARTED):
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    process.wait(60)


def start(
    folder: str, *arguments: str, hub: str = "", python: str = sys.executable
) -> tuple[subprocess.Popen[str], str]:
    """A process of Tensonde, and the address of the UI that it says."""
    log = Path(folder) / f"{arguments[0]}.log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_RUNTIME_DIR": folder, "PYTHONUNBUFFERED": "1"}
    with log.open("w") as out:
        process = subprocess.Popen(
            [python, "-m", "tensonde", *arguments], cwd=folder, env={**environment, **({"TENSONDE_HUB": hub} if hub else {})},
            stdout=out, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    STARTED.append(process)
    return process, hub or wait(lambda: re.search(r"the UI is at (\S+)", log.read_text()))[1]


def wait(what: Callable[[], Any], seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.1)
    raise TimeoutError("it did not happen in time")


def open_page(browser: Any, url: str, theme: str, width: int = 1366, height: int = 768, run: str = "") -> Any:
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce"
    )
    context.set_default_timeout(90_000)
    page = context.new_page()
    page.goto(url)
    page.get_by_test_id("run").filter(has_text=run).first.click()
    page.get_by_test_id("state").wait_for()
    return page


def keep(page: Any, name: str) -> None:
    page.mouse.move(3, 50)  # over nothing that would show it
    time.sleep(1.2)
    path = OUT / f"{name}.png"
    page.screenshot(path=path)
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)} {size // 1000} kB")
    if size > LARGEST:
        sys.exit(f"{path.name} has {size} bytes, more than {LARGEST}")
    page.context.close()


def settled(page: Any) -> None:
    """The details are those of the selection, and its tensor is drawn, as a map and in numbers."""
    named = """() => {
      const sel = window.__tensonde.app.route.sel.replace(/:[^:/]*$/, '');
      return document.querySelector('[data-testid=details] h2')?.textContent === sel && !!document.querySelector('[data-testid=heat-map]')
        && (document.querySelector('[data-testid=grid] b')?.textContent ?? '·') !== '·';
    }"""
    wait(lambda: page.evaluate(named))


def select(page: Any, name: str) -> None:
    page.locator("#tree-search").fill(name)
    page.locator(f"[data-testid=tree-row][data-name='{name}']").click()
    page.locator("#tree-search").fill("")


def live(browser: Any, folder: str, url: str) -> None:
    """Where a watchpoint of the recommended set stops the training, and a parameter against the step before."""
    training, _ = start(folder, "debug", "--ui", "tiny_gpt.py", hub=url)
    page = browser.new_page()
    page.goto(url)
    page.get_by_test_id("run").first.wait_for(timeout=120_000)
    page.close()
    page = open_page(browser, url, "light", 1280, 720)
    page.wait_for_selector("[data-testid=state][data-state=stopped]")
    page.get_by_test_id("continue").click()
    page.wait_for_selector("[data-testid=state][data-state=running]")
    wait(
        lambda: page.evaluate(
            "(window.__tensonde.app.place.outline?.edges ?? 0) > 40 && window.__tensonde.app.place.lastStep > 1"
        )
    )
    page.get_by_test_id("continue").click()
    page.wait_for_selector("[data-testid=state][data-state=stopped]")
    page.get_by_test_id("tab-tensor").click()
    select(page, "places.weight")
    page.get_by_test_id("tensor-address").select_option("places.weight:value")
    page.get_by_test_id("compare").select_option("previous")
    page.get_by_test_id("difference").wait_for()
    keep(page, "ui-compare")
    page = open_page(browser, url, "dark")
    page.get_by_test_id("continue").click()
    page.wait_for_selector(".state.hit", timeout=120_000)
    page.get_by_test_id("tab-hits").click()
    page.get_by_test_id("hit").first.click()
    page.get_by_label("Dimension 0, of 8").fill("7")  # the sample that is empty
    page.get_by_label("Dimension 0, of 8").press("Enter")
    page.get_by_test_id("heat-map").wait_for()
    settled(page)
    keep(page, "ui-stopped")
    page = open_page(browser, url, "light")
    while training.poll() is None:
        if page.get_by_test_id("state").get_attribute("data-state") == "stopped":
            for box in page.get_by_test_id("watchpoint").get_by_role("checkbox").all():
                box.uncheck()
            page.get_by_test_id("continue").click()
        time.sleep(1)
    page.context.close()


def compiled(browser: Any, folder: str, url: str) -> None:
    """A MindSpore training in GRAPH_MODE, stopped inside of its compiled step, with the graph that MindSpore compiled."""
    shutil.copy(ROOT / "examples" / "mindspore" / "compiled.py", folder)
    training, _ = start(folder, "debug", "--ui", "compiled.py", hub=url, python=str(MINDSPORE))
    page = browser.new_page()
    page.goto(url)
    page.get_by_test_id("run").filter(has_text="compiled").first.wait_for(timeout=120_000)
    page.close()
    page = open_page(browser, url, "light", 1280, 720, run="compiled")
    page.wait_for_selector("[data-testid=state][data-state=stopped]")
    page.get_by_test_id("step").click()
    wait(lambda: page.evaluate("(window.__tensonde.app.place.outline?.edges ?? 0) > 10"))
    for _ in range(9):  # to the cells of the second step
        page.wait_for_selector("[data-testid=state][data-state=stopped]")
        page.get_by_test_id("next").click()
        time.sleep(1)
    page.wait_for_selector("[data-testid=state][data-state=stopped]")
    page.get_by_test_id("tab-tensor").click()
    settled(page)
    keep(page, "ui-mindspore")
    training.terminate()
    training.wait(60)


def finished(browser: Any, url: str) -> None:
    """What the diagnosis found, and the curves."""
    page = open_page(browser, url, "light")
    wait(lambda: page.evaluate("window.__tensonde.boxes().length > 0"))
    page.get_by_test_id("tab-findings").click()
    page.get_by_test_id("finding-site").first.click()
    page.get_by_test_id("tab-findings").click()
    keep(page, "ui-findings")
    page = open_page(browser, url, "dark")
    select(page, "blocks.1.attn.qkv.weight")
    page.get_by_test_id("tab-charts").click()
    page.get_by_test_id("chart").nth(2).wait_for()
    keep(page, "ui-charts")


def compared(browser: Any, folder: str, url: str) -> None:
    """The two networks of docs/compare.md side by side."""
    for name in ("compare_port", "compare_ref"):
        shutil.copy(ROOT / "examples" / f"{name}.py", folder)
        training, _ = start(folder, "run", "-q", "--record", f".tensonde/runs/{name}", f"{name}.py", hub=url)
        training.wait(300)
    page = open_page(browser, url, "dark")
    page.get_by_test_id("run-picker").click()
    page.get_by_role("menuitem").filter(has_text="compare_port").click()
    page.get_by_test_id("run-picker").click()
    page.get_by_test_id("compare-with").click()
    page.get_by_role("menuitem").filter(has_text="compare_ref").click()
    wait(lambda: all(page.evaluate("window.__tensonde.compared()")))
    keep(page, "ui-comparison")


if __name__ == "__main__":
    main()
