"""At a hit: in execution order with what was set and seen, grouped, and a click goes to node, line and tensor; which is compared with
the step before, with a step that was recorded, and with another run, at any of its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from test_debugging import expect_state

from conftest import Desk, wait_until

TRAINING = """
    import sys, torch, torch.nn as nn
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
    for step in range(int(sys.argv[1])):
        x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
        if step == 12:
            x[3] = float("nan")
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def test_hits_lead_to_the_place_and_any_site_is_compared(
    desk: Desk, page: Any, boxes: Callable[[], dict[str, Any]]
) -> None:
    script = desk.script("train.py", TRAINING)
    words = ("--dump", "encoder.0", "--dump-steps", "0,2-5", "--record", ".tensonde/runs/kept")
    kept = desk.tensonde("run", "-q", "--no-experiments", *words, script, "8")
    assert kept.process.wait(300) == 0, kept.said
    _, url = desk.hub()
    training = desk.tensonde("debug", "--ui", "--record", ".tensonde/runs/bad", script, "40", TENSONDE_HUB=url)
    page.goto(url)
    row = page.get_by_test_id("run").filter(has_text="bad")
    assert "train.py 40" in row.text_content()
    row.click()
    expect_state(page, "stopped")
    page.get_by_test_id("continue").click()
    page.wait_for_selector(".state.hit")

    # The hit has its line, what was set and what was seen; the selection is there, with the line, and the loss of all steps is drawn.
    page.get_by_test_id("tab-hits").click()
    hit = page.get_by_test_id("hit").first
    where = hit.get_attribute("data-site")
    assert all(word in hit.text_content() for word in ("train.py:", "nan > 0", "nan = ")), hit.text_content()
    wait_until(lambda: page.evaluate("window.__tensonde.app.route.sel") == where)
    assert "train.py:" in page.get_by_test_id("details-line").text_content()
    wait_until(lambda: page.evaluate("window.__tensonde.app.place.loss.step.length") == 12)

    # Any site against the step before, though nothing was stepped so far.
    page.evaluate("window.__tensonde.app.select('encoder.0:out', { tab: 'tensor' })")
    page.get_by_test_id("compare").select_option("previous")
    page.get_by_text("step 11, the step before").wait_for()
    wait_until(lambda: page.get_by_test_id("heat-map").count() == 3)
    # The gradient of this step is not made yet: it is of the step before, and says so.
    ages = page.locator("[data-testid=port][data-address='encoder.0:grad'] ~ .type [data-testid=age]")
    assert ages.text_content() == "step 11"

    # Another run: the nearest step that it kept, which is said; then a chosen one.
    page.get_by_test_id("compare").select_option(label="run kept")
    page.get_by_text("kept, step 5, the nearest to 12").wait_for()
    page.get_by_test_id("compare-step").select_option("3")
    page.get_by_text("kept, step 3").wait_for()
    assert page.url.endswith("rank0/3")
    wait_until(lambda: page.get_by_test_id("heat-map").count() == 3)

    # On: the weights are NaN from then on, and hits of one watchpoint in a row are one row with their number.
    for box in page.get_by_test_id("watchpoint").get_by_role("checkbox").all():
        box.uncheck()
    page.get_by_test_id("continue").click()
    wait_until(lambda: training.process.poll() is not None)
    expect_state(page, "finished")
    page.get_by_test_id("tab-hits").click()
    total = wait_until(lambda: page.evaluate("window.__tensonde.app.place.hitTotal"))
    groups = page.get_by_test_id("hit-group")
    if total > 3:
        assert groups.count()
