"""Two recordings side by side: the view opens at the first divergence, selected on both sides."""

from __future__ import annotations

import re
from typing import Any

from conftest import Desk, wait_until

TRAINING = """
    import torch, torch.nn as nn
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16, eps=1e-5), nn.GELU(), nn.Linear(16, 16))
            self.head = nn.Linear(16, 4)
        def forward(self, x):
            return self.head(torch.tanh(self.encoder(x)))

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(6):
        x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def test_the_first_divergence_is_named_and_selected_on_both_sides(desk: Desk, page: Any) -> None:
    for name, text in (("ours", TRAINING), ("theirs", TRAINING.replace("eps=1e-5", "eps=1e-2"))):
        ran = desk.tensonde("run", "-q", "--record", f".tensonde/runs/{name}", desk.script(f"{name}.py", text))
        assert ran.process.wait(300) == 0, ran.said
    _, url = desk.hub()
    page.goto(url)
    page.get_by_test_id("run").filter(has_text="ours").click()
    page.get_by_test_id("run-picker").click()
    page.get_by_test_id("compare-with").click()
    page.get_by_role("menuitem").filter(has_text="theirs").click()

    wait_until(lambda: "encoder.1:out" in page.get_by_test_id("verdict").text_content())
    wait_until(lambda: "encoder.1.eps" in page.get_by_test_id("compare-settings").text_content())
    wait_until(lambda: re.match(r".*#/compare/\w+/rank0/\w+/rank0\?sel=encoder.1:out$", page.url))
    selected = "window.__tensonde.compared()"
    wait_until(lambda: [side and side["name"] for side in page.evaluate(selected)] == ["encoder.1", "encoder.1"])
    wait_until(lambda: all(side["seen"] and side["status"] == 3 for side in page.evaluate(selected)))
    row = page.locator("[data-testid=difference][aria-selected=true]")
    wait_until(lambda: row.get_attribute("data-status") == "origin")

    # On to the next one, by key, and back to the first.
    page.keyboard.press(".")
    wait_until(lambda: row.get_attribute("data-site") == "encoder.1/layer_norm#0:out")
    wait_until(lambda: {side["name"] for side in page.evaluate(selected)} == {"encoder.1/layer_norm#0"})
    # A row of the backward pass shows the graphs of that.
    page.locator("[data-testid=difference][data-site='encoder.0/linear#0:grad']").click()
    wait_until(lambda: {side and side["name"] for side in page.evaluate(selected)} == {"encoder.0/linear#0 (backward)"})
    page.get_by_test_id("first-divergence").click()
    wait_until(lambda: {side and side["name"] for side in page.evaluate(selected)} == {"encoder.1"})

    # What cannot be compared says why.
    page.goto(re.sub(r"/\w+/rank0\?.*", "/nowhere/rank0", page.url))
    page.get_by_test_id("compare-problem").get_by_text("there is no run").wait_for()
