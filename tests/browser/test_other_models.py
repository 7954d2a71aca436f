"""Models of other kinds: two losses in a step, a loop in forward, and a training that speaks to no hub."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from test_debugging import TRAINING, expect_state, open_run

from conftest import Desk, wait_until

GAN = """
    import torch, torch.nn as nn
    torch.manual_seed(0)
    G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    D = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
    g, d = torch.optim.Adam(G.parameters(), 1e-4), torch.optim.Adam(D.parameters(), 1e-4)
    bce = nn.BCEWithLogitsLoss()
    for step in range(30):
        fake = G(torch.randn(32, 4))
        d.zero_grad()
        of_d = bce(D(torch.randn(32, 2) + 3), torch.ones(32, 1)) + bce(D(fake.detach()), torch.zeros(32, 1))
        of_d.backward(); d.step()
        g.zero_grad()
        of_g = bce(D(fake), torch.ones(32, 1))
        of_g.backward(); g.step()
    print("losses", of_d.item(), of_g.item())
"""
LOOP = """
    import torch, torch.nn as nn
    torch.manual_seed(0)

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.cell, self.out = nn.Embedding(50, 16), nn.GRUCell(16, 16), nn.Linear(16, 7)
        def forward(self, words):
            given, state, found = self.embed(words), torch.zeros(len(words), 16), []
            for k in range(words.shape[1]):
                state = self.cell(given[:, k], state)
                found.append(torch.tanh(self.out(state)))
            return torch.stack(found, 1)

    net = Tagger()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(5):
        words = torch.randint(0, 50, (8, 24))
        loss = nn.functional.cross_entropy(net(words).flatten(0, 1), (words % 7).flatten())
        optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def test_two_losses_and_a_loop(desk: Desk, page: Any, boxes: Callable[[], dict[str, Any]]) -> None:
    gan = desk.tensonde("run", "-q", "--record", "runs/gan", desk.script("gan.py", GAN))
    gan.process.wait(120)
    loop = desk.tensonde("run", "-q", "--record", "runs/loop", desk.script("loop.py", LOOP))
    loop.process.wait(120)
    _, url = desk.hub()
    open_run(page, url, boxes, "gan")

    # Each loss has its line; the numbers are those that the program printed.
    page.get_by_test_id("tab-charts").click()
    chart = page.locator("[data-testid=chart][data-title=loss]")
    printed = [float(word) for word in gan.wait_for(r"losses (\S+) (\S+)").groups()]
    shown = lambda: [float(word) for word in chart.locator("figcaption span").first.text_content().split(", ")]  # noqa: E731
    wait_until(lambda: chart.count() and len(shown()) == 2)
    assert all(abs(one - other) < 1e-3 * other for one, other in zip(shown(), printed, strict=True)), (shown(), printed)

    # What comes into the step from outside is a node with numbers, and a neighbour of what takes it.
    page.evaluate("window.__tensonde.app.select('input#0')")
    details = page.get_by_test_id("details")
    details.get_by_role("heading", name="input#0").wait_for()
    details.get_by_text("float32[32, 4]").wait_for()
    page.evaluate("window.__tensonde.app.select('G')")
    details.get_by_role("heading", name="G", exact=True).wait_for()
    details.get_by_test_id("neighbour").filter(has_text="input#0").wait_for()

    # Calls of a loop stand side by side; still every name can be read.
    page.set_viewport_size({"width": 1280, "height": 800})
    open_run(page, url, boxes, "loop")
    wait_until(lambda: "net/tanh#23" in boxes() or "net" in boxes())
    assert min(box["height"] for box in boxes().values()) >= 14, boxes()


def test_a_training_that_speaks_to_no_hub_has_not_ended(desk: Desk, page: Any) -> None:
    desk.tensonde("run", "--record", "runs/alone", desk.script("train.py", TRAINING))
    _, url = desk.hub()
    page.goto(url)
    page.get_by_test_id("run").first.click()
    expect_state(page, "apart")
    page.get_by_test_id("no-watchpoints").filter(has_text="not known here yet").wait_for()
    assert "ended" not in page.inner_text("body")


NAN = """
    import torch, torch.nn as nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(6):
        x = torch.randn(16, 8)
        if step == 3:
            x[2, 5] = float("nan")
        loss = nn.functional.cross_entropy(net(x), torch.randint(0, 4, (16,)))
        optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def test_findings_lead_to_their_place(desk: Desk, page: Any, boxes: Callable[[], dict[str, Any]]) -> None:
    desk.tensonde("run", "-q", "--record", "runs/nan", desk.script("nan.py", NAN)).process.wait(120)
    _, url = desk.hub()
    open_run(page, url, boxes, "nan")
    page.get_by_test_id("tab-findings").click()
    site = page.get_by_test_id("finding-site").first
    named = site.text_content()
    site.click()
    wait_until(lambda: page.evaluate("window.__tensonde.app.route.sel") == named)
    assert page.evaluate("window.__tensonde.app.route.step") == 3
    # Code in a sentence is set as code: no backtick is left.
    page.get_by_test_id("tab-findings").click()
    advice = page.get_by_test_id("findings").locator("article p")
    wait_until(lambda: advice.locator("code").count() > 0)
    assert not any("`" in said for said in advice.all_text_contents())
