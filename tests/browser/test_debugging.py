"""The whole way: a training under `tensonde run --ui`, seen, watched, stopped, looked into, and ended from the browser."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from conftest import Desk, wait_until

TRAINING = """
    import time, torch, torch.nn as nn
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))
            self.head = nn.Linear(16, 4)
        def forward(self, x):
            return self.head(torch.tanh(self.encoder(x)))

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(100_000):
        x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        time.sleep(0.01)
"""


def expect_state(page: Any, state: str) -> None:
    page.wait_for_selector(f"[data-testid=state][data-state={state}]")


def pause(page: Any) -> None:
    page.get_by_test_id("continue").click()
    expect_state(page, "stopped")


def click_box(page: Any, box: dict[str, Any]) -> None:
    page.mouse.click(box["x"] + box["width"] * 0.7, box["y"] + min(12, box["height"] / 2))


def open_run(page: Any, url: str, boxes: Callable[[], dict[str, Any]], name: str = "") -> None:
    """`url` leads to a run, or to the list."""
    page.goto(url)
    if "#/run/" not in url:
        page.get_by_test_id("run").filter(has_text=name).first.click()
    wait_until(boxes)


def test_a_training_is_debugged_in_the_browser(desk: Desk, page: Any, boxes: Callable[[], dict[str, Any]]) -> None:
    training = desk.tensonde("run", "--ui", desk.script("train.py", TRAINING))
    open_run(page, training.wait_for(r"the UI is at (\S+)")[1], boxes)

    # The graph is there, and a click in it selects.
    shown = wait_until(lambda: (found := boxes()) and "head" in found and found)
    click_box(page, shown["head"])
    page.get_by_test_id("details").get_by_role("heading", name="head", exact=True).wait_for()
    expect_state(page, "running")
    pause(page)

    # A watchpoint on what is selected, by clicking; it stops the training at once.
    page.get_by_test_id("watch-selection").click()
    wait_until(lambda: page.get_by_test_id("watch-count").text_content() == "1 site")
    page.get_by_test_id("watch-condition").select_option("")
    # What is wrong is said, with a mark below the place, and what was written stays.
    page.get_by_test_id("watch-expression").fill("nrm > 0")
    page.get_by_test_id("watch-save").click()
    wrong = page.get_by_test_id("watch-problem")
    wait_until(lambda: "did you mean norm?" in (wrong.text_content() or ""))
    quoted, mark = wrong.inner_text().splitlines()[1:]
    assert quoted.index("nrm") == mark.index("^"), wrong.inner_text()
    assert page.get_by_test_id("watch-expression").input_value() == "nrm > 0"
    page.get_by_test_id("watch-expression").fill("norm > 0")
    page.get_by_test_id("watch-sites").fill("head:nope")
    wait_until(lambda: "There is no role 'nope'" in (wrong.text_content() or ""))
    assert page.get_by_test_id("watch-save").is_disabled()
    page.get_by_test_id("watch-sites").fill("head:out")
    wait_until(lambda: page.get_by_test_id("watch-count").text_content() == "1 site")
    # On what is recorded so far it would have found something, and a click goes there.
    page.get_by_test_id("watch-recheck").click()
    wait_until(lambda: "1 hit in" in (page.get_by_test_id("recheck-result").text_content() or ""))
    page.get_by_test_id("watch-save").click()
    page.get_by_test_id("watchpoint").filter(has_text="norm > 0").wait_for()
    page.get_by_test_id("continue").click()
    wait_until(lambda: "norm > 0" in (page.get_by_test_id("state").text_content() or ""))
    expect_state(page, "stopped")
    wait_until(lambda: (page.get_by_test_id("hit-count").text_content() or "0")[0] != "0")

    # The hit leads to the tensor.
    page.get_by_test_id("tab-hits").click()
    hit = page.get_by_test_id("hit").first
    assert hit.get_attribute("data-site") == "head:out"
    hit.click()
    page.get_by_test_id("tensor-address").wait_for()
    wait_until(lambda: page.get_by_test_id("tensor-address").input_value() == "head:out")
    wait_until(lambda: page.get_by_test_id("heat-map").count() == 1)
    cells = page.get_by_test_id("grid").locator("b")
    wait_until(lambda: any((text or "·") not in "·" for text in cells.all_text_contents()))

    # A parameter against the step before.
    page.get_by_test_id("watchpoint").filter(has_text="norm > 0").get_by_role("checkbox").uncheck()
    page.locator("#tree-search").fill("head.weight kind:parameter")
    page.get_by_test_id("tree-row").filter(has_text="head.weight").click()
    # Watched, it is its value that is watched.
    page.get_by_test_id("watch-selection").click()
    wait_until(lambda: page.get_by_test_id("watch-sites").input_value() == "head.weight:value")
    wait_until(lambda: page.get_by_test_id("watch-count").text_content() == "1 site")
    page.get_by_role("button", name="Close", exact=True).click()
    page.get_by_test_id("tensor-address").select_option("head.weight:value")
    page.get_by_test_id("compare").select_option("previous")
    # As the page says: at the first stop nothing older is kept, so it takes a step or two.
    either = page.get_by_test_id("no-comparison").or_(page.get_by_test_id("difference"))
    for _ in range(3):
        if either.get_attribute("data-testid") == "difference":
            break
        before = page.get_by_test_id("current-step").text_content()
        page.get_by_role("button", name="Run a step").click()
        wait_until(lambda before=before: page.get_by_test_id("current-step").text_content() != before)
        expect_state(page, "stopped")
        time.sleep(1)
    page.get_by_test_id("difference").wait_for()
    wait_until(lambda: page.get_by_test_id("heat-map").count() == 3)
    page.get_by_test_id("compare").select_option("")

    # Whoever has chosen from a list by a click has the keys back.
    page.get_by_test_id("compare").focus()
    page.keyboard.press("w")  # with the keyboard in the list, letters choose there
    assert page.get_by_test_id("watch-sites").count() == 0
    page.get_by_test_id("compare").dispatch_event("pointerdown")
    page.get_by_test_id("compare").select_option("previous")
    page.get_by_test_id("compare").dispatch_event("pointerdown")
    page.get_by_test_id("compare").select_option("")
    page.keyboard.press("w")
    page.get_by_test_id("watch-sites").wait_for()
    page.get_by_role("button", name="Close", exact=True).click()

    # On to a node.
    page.locator("#tree-search").fill("encoder.2")
    page.locator("[data-testid=tree-row][data-name='encoder.2']").click()
    page.get_by_test_id("until").click()
    wait_until(lambda: "encoder.2" in (page.get_by_test_id("state").text_content() or ""))
    expect_state(page, "stopped")

    # One step, then the end.
    before = int(page.get_by_test_id("current-step").text_content())
    page.get_by_test_id("step").click()
    wait_until(lambda: int(page.get_by_test_id("current-step").text_content()) > before)
    expect_state(page, "stopped")
    page.get_by_test_id("terminate").click()
    page.get_by_test_id("terminate").click()
    # It did not finish: somebody ended it, and the recording says so.
    wait_until(lambda: training.process.poll() is not None)
    _, url = desk.hub()
    open_run(page, url, boxes)
    expect_state(page, "terminated")
    assert page.get_by_test_id("state").text_content().strip() == "Terminated"
    page.goto(url)
    wait_until(lambda: "terminated" in (page.get_by_test_id("run").first.text_content() or "").lower())


def test_two_trainings_on_one_hub(desk: Desk, page: Any, boxes: Callable[[], dict[str, Any]]) -> None:
    _, url = desk.hub()
    first = desk.tensonde("run", desk.script("first.py", TRAINING), TENSONDE_HUB=url)
    second = desk.tensonde("run", desk.script("second.py", TRAINING), TENSONDE_HUB=url)
    page.goto(url)
    wait_until(lambda: page.get_by_test_id("run").count() == 2)
    # The list goes with them: how far each is, and how its loss went.
    row = page.get_by_test_id("run").filter(has_text="second")
    step = lambda: int((row.locator("td").nth(6).text_content() or "0").replace(" ", ""))  # noqa: E731
    wait_until(lambda: row.locator("svg").count() == 1)
    before = step()
    wait_until(lambda: step() > before)
    open_run(page, url, boxes, "first")
    pause(page)
    page.get_by_test_id("run-picker").click()
    page.get_by_role("menuitem").filter(has_text="second").click()
    expect_state(page, "running")  # the pause of one is not the other's
    wait_until(boxes)
    assert first.process.poll() is None
    assert second.process.poll() is None


def test_the_hub_dies_and_comes_back(desk: Desk, page: Any, boxes: Callable[[], dict[str, Any]]) -> None:
    hub, url = desk.hub()
    training = desk.tensonde("run", desk.script("train.py", TRAINING), TENSONDE_HUB=url)
    page.goto(url)
    open_run(page, url, boxes)
    expect_state(page, "running")
    port = int(url.split(":")[2].split("/")[0])
    hub.process.kill()
    page.get_by_test_id("hub-lost").wait_for()
    assert training.process.poll() is None
    desk.hub(port)
    page.get_by_test_id("hub-lost").wait_for(state="hidden")
    expect_state(page, "running")
    before = int((page.get_by_test_id("current-step").text_content() or "0").replace(" ", ""))
    wait_until(lambda: int((page.get_by_test_id("current-step").text_content() or "0").replace(" ", "")) > before)
    pause(page)
    assert training.process.poll() is None


def test_the_hub_dies_while_the_training_is_stopped(desk: Desk, page: Any, boxes: Callable[[], dict[str, Any]]) -> None:
    """Nobody claims to know that it still is; what was read stays; then it is stopped where it was."""
    hub, url = desk.hub()
    desk.tensonde("run", desk.script("train.py", TRAINING), TENSONDE_HUB=url)
    page.goto(url)
    open_run(page, url, boxes)
    expect_state(page, "running")
    port = int(url.split(":")[2].split("/")[0])
    source = page.get_by_label("Which graph")
    wait_until(lambda: source.count() and source.input_value())  # while it runs: a stopped one writes no graph
    pause(page)
    at = page.get_by_test_id("current-step").text_content()
    hub.process.kill()
    expect_state(page, "lost")
    page.get_by_test_id("hub-lost").wait_for()
    shown = source.input_value()
    assert shown
    assert page.get_by_test_id("continue").is_disabled()
    page.wait_for_timeout(2000)
    assert "No graph" not in page.text_content("body")
    assert boxes()
    assert source.input_value() == shown
    desk.hub(port)
    page.get_by_test_id("hub-lost").wait_for(state="hidden")
    expect_state(page, "stopped")
    assert page.get_by_test_id("current-step").text_content() == at
    page.get_by_test_id("continue").click()
    expect_state(page, "running")


def test_a_wrong_token_is_refused(desk: Desk, page: Any) -> None:
    _, url = desk.hub()
    page.goto(url.split("?")[0])
    wait_until(lambda: "token" in page.text_content("body"))
    page.goto(url.replace("a-token", "b-token"))
    wait_until(lambda: "token" in page.text_content("body"))
    assert page.get_by_test_id("run").count() == 0
    page.goto(url)
    page.get_by_text("No runs yet").wait_for()
