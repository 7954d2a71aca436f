"""The page says what the training does, goes to where it stops, and bears a large model."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from test_debugging import TRAINING, expect_state, open_run, pause

from conftest import Desk, wait_until

DEEP = """
    import os, time
    while not os.path.exists("go"):
        time.sleep(0.05)
    import torch, torch.nn as nn
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        def forward(self, x):
            h = nn.functional.gelu(self.up(self.norm(x)))
            return x + self.down(h * h)

    net = nn.Sequential(*(Block() for _ in range(48)), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(100_000):
        x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        time.sleep(0.02)
"""
CUT = """() => [...document.querySelectorAll('header button, header [data-testid=stop-place], [data-testid=details] header button')]
  .filter((one) => one.scrollWidth > one.clientWidth + 1 && one.dataset.testid === 'stop-place' || one.getBoundingClientRect().right > innerWidth)
  .map((one) => one.title || one.textContent)"""
STATE = """() => {
  const pill = document.querySelector('[data-testid=state]'), stop = window.__tensonde.app.place.stop;
  return { state: pill.dataset.state, text: pill.textContent, number: stop?.number ?? -1, site: stop?.site ?? '' };
}"""


def quiet(page: Any, asked: list[str]) -> None:
    """Until the page has asked for nothing for a while, however slow the machine is."""
    before = -1
    while before != len(asked):
        before = len(asked)
        page.wait_for_timeout(1500)


def test_where_it_says_stopped_it_is_stopped_there(desk: Desk, page: Any, boxes: Callable[[], dict[str, Any]]) -> None:
    training = desk.tensonde("run", "--ui", desk.script("train.py", TRAINING))
    open_run(page, training.wait_for(r"the UI is at (\S+)")[1], boxes)
    pause(page)
    # Next node, 200 times: after each, the page says stopped, names the node, and has it selected.
    seen = page.evaluate(STATE)["number"]
    sites = []
    for _ in range(200):
        page.keyboard.press("F9")
        page.wait_for_function("n => (window.__tensonde.app.place.stop?.number ?? -1) > n", arg=seen)
        shown = page.evaluate(STATE)
        seen = shown["number"]
        assert shown["state"] == "stopped", shown
        # In the backward pass it is the gradients that come one after the other.
        assert ("next gradient" if ":grad" in shown["site"] else "next node") in shown["text"], shown
        sites.append(shown["site"])
    # It stays so: nothing that comes late says otherwise.
    page.wait_for_timeout(1500)
    expect_state(page, "stopped")
    assert page.evaluate(STATE)["number"] == seen
    assert len({site for site in sites if "/" in site}) >= 5, sites

    # Selection, tree, details and graph went there, and go back.
    last = sites[-1].rsplit(":", 1)[0]
    wait_until(lambda: page.evaluate("window.__tensonde.app.route.sel") == sites[-1])
    details = page.get_by_test_id("details")
    wait_until(lambda: last in (details.text_content() or ""))
    wait_until(
        lambda: (
            page.locator("[data-testid=tree-row][aria-selected=true]").get_attribute("data-name")
            in (last, f"{last} (backward)", last.split("/")[0])
        )
    )
    assert page.evaluate("window.__tensonde.graph().selection()?.seen") in (True, None)

    # In the forward pass, the whole stack of the user's code: from the module's forward to the line of the script, each to be unfolded.
    while ":grad" in page.evaluate(STATE)["site"] or "encoder" not in page.evaluate(STATE)["site"]:
        page.keyboard.press("F9")
        page.wait_for_function("n => (window.__tensonde.app.place.stop?.number ?? -1) > n", arg=seen)
        shown = page.evaluate(STATE)
        seen = shown["number"]
        sites.append(shown["site"])
    frames = page.get_by_test_id("stack").locator("summary")
    wait_until(lambda: [word.split(" in ")[1] for word in frames.all_text_contents()] == ["forward", "<module>"])
    frames.last.click()
    page.get_by_test_id("stack").get_by_text("loss = nn.functional.cross_entropy(net(x), y)").wait_for()
    page.go_back()
    wait_until(lambda: page.evaluate("window.__tensonde.app.route.sel") == sites[-2])

    # On a small screen, too, the whole place of the stop is to be read, and nothing runs out of the page.
    for width, height in ((1024, 768), (1280, 800)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(200)
        assert page.evaluate(CUT) == [], width

    # Held, the selection stays.
    page.get_by_test_id("follow").click()
    held = page.evaluate("window.__tensonde.app.route.sel")
    page.keyboard.press("F9")
    page.wait_for_function("n => (window.__tensonde.app.place.stop?.number ?? -1) > n", arg=seen)
    page.wait_for_timeout(300)
    assert page.evaluate("window.__tensonde.app.route.sel") == held


def test_a_model_of_48_layers_asks_little_and_shows_all(
    desk: Desk, page: Any, boxes: Callable[[], dict[str, Any]]
) -> None:
    asked: list[str] = []
    failed: list[str] = []
    page.on("request", lambda request: asked.append(re.sub(r".*/rank0/?|\?.*", "", request.url)))
    page.on("requestfailed", lambda request: failed.append(request.url))
    training = desk.tensonde("debug", "--ui", desk.script("deep.py", DEEP))
    page.goto(training.wait_for(r"the UI is at (\S+)")[1])
    # Opened before the training has said a word: there is nothing to complain about.
    expect_state(page, "starting")
    page.get_by_text("The training is starting", exact=True).wait_for()
    (desk.folder / "go").touch()
    expect_state(page, "stopped")
    # Before the first step: the modules are there, and their weights.
    wait_until(lambda: page.evaluate("window.__tensonde.app.place.outline?.name.includes('47.down.weight')"))
    asked.clear()
    began = time.monotonic()
    page.get_by_test_id("continue").click()
    wait_until(lambda: page.evaluate("(window.__tensonde.app.place.outline?.edges ?? 0) > 48 * 5"))
    wait_until(lambda: page.evaluate("window.__tensonde.app.place.lastStep") > 20)
    ops = page.evaluate("window.__tensonde.app.place.outline.name.filter((name) => name.includes('/')).length")
    assert ops >= 48 * 4, ops
    assert not failed
    # However long the steps took: what is coalesced is asked for once in 1.5 seconds at most, and the rest once in two.
    counts, seconds = {name: asked.count(name) for name in set(asked)}, time.monotonic() - began
    for name in ("sites", "graph", "watchpoints", "breakpoints"):
        assert counts.get(name, 0) <= 3 + seconds / 1.5, (seconds, counts)
    assert len(asked) < 60 + 5 * seconds, (seconds, counts)
    assert page.evaluate("window.toasts") == []

    # An op that takes one tensor twice: it is shown, and says so. A stop asks for what it needs once.
    page.evaluate("window.__tensonde.app.select('3/mul#0')")
    details = page.get_by_test_id("details")
    details.get_by_role("heading", name="3/mul#0").wait_for()
    details.get_by_text("gelu#0:out × 2").wait_for()
    pause(page)
    # A pause comes anywhere in the step; in the backward pass, F9 goes from gradient to gradient.
    page.keyboard.press("F9")
    wait_until(lambda: re.search("next (node|gradient)", page.evaluate(STATE)["text"]))
    quiet(page, asked)
    asked.clear()
    before = page.evaluate(STATE)["number"]
    page.keyboard.press("F9")
    page.wait_for_function("n => (window.__tensonde.app.place.stop?.number ?? -1) > n", arg=before)
    quiet(page, asked)
    name = page.evaluate(STATE)["site"].rsplit(":", 1)[0]
    details.get_by_role("heading", name=name).wait_for()
    assert len(asked) < 40, {one: asked.count(one) for one in set(asked)}
    assert asked.count("tensor") <= 4, asked
