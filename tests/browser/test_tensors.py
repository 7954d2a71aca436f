"""The tensor view with every kind of tensor: what it shows is what the tensor holds, and what cannot be shown is said in one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
from test_debugging import expect_state

from conftest import Desk, wait_until

ODD = """
    import time, torch, torch.nn as nn
    torch.manual_seed(0)

    class Gives(nn.Module):
        def forward(self, x):
            return x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            for name in "scalar vector five empty mask wave brain nans constant infs".split():
                setattr(self, name, Gives())
            self.body = nn.Linear(8, 8)
            self.large = nn.Parameter(torch.arange(2048.0 * 512).reshape(2048, 512) / 1e6)
        def forward(self, x):
            h = self.body(x)
            self.scalar(h.mean()); self.vector(h[0]); self.five(torch.arange(96.0).reshape(2, 3, 2, 4, 2))
            self.empty(h[:0]); self.mask(h > 0); self.brain(h.bfloat16()); self.constant(torch.full((3, 4), 2.5))
            self.wave(torch.complex(torch.full((2, 3), 3.0), torch.full((2, 3), 4.0)))
            self.nans(torch.full((4, 6), float("nan"))); self.infs(torch.tensor([[1.0, float("inf"), float("nan")]]))
            return h.sum(1) + self.large[0, :16]

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(100_000):
        loss = net(torch.randn(16, 8)).pow(2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        time.sleep(0.02)
"""
EXPECTED = {
    "scalar": None, "vector": None, "mask": "0 … 1", "brain": None, "empty": "empty", "nans": "no finite value",
    "constant": "all 2.5", "wave": "all 5", "infs": "all 1", "five": "0 … 7",
}  # fmt: skip


def test_every_kind_of_tensor_is_shown_as_it_is(desk: Desk, page: Any) -> None:
    training = desk.tensonde("debug", "--ui", "--no-experiments", "--no-recommended", desk.script("train.py", ODD))
    page.goto(training.wait_for(r"the UI is at (\S+)")[1])
    expect_state(page, "stopped")
    # Before the first step: the initial weights are there, as numbers.
    page.evaluate("window.__tensonde.app.select('large:value', { tab: 'tensor' })")
    wait_until(lambda: page.get_by_test_id("heat-range").text_content() == "0.00359 … 1.05")  # by patches
    page.keyboard.press("F10")
    wait_until(lambda: "step done" in (page.get_by_test_id("state").text_content() or ""))
    shown = page.get_by_test_id("heat-range")
    for name, said in EXPECTED.items():
        page.evaluate("sel => window.__tensonde.app.select(sel, { tab: 'tensor' })", f"{name}:out")
        wait_until(lambda name=name: page.get_by_test_id("tensor-address").input_value() == f"{name}:out")
        shown.wait_for()
        if said is not None:
            wait_until(lambda said=said: shown.text_content() == said)
        else:
            wait_until(lambda: "…" in (text := shown.text_content() or "") or text.startswith("all "))
    page.get_by_role("heading", name="Of the whole tensor").wait_for()  # the last one has five dimensions
    assert "0" in page.get_by_test_id("grid").text_content()

    # A slice: real indices beside the numbers; one that there is not is refused with its reason, and what was shown stays.
    page.evaluate("window.__tensonde.app.go({ idx: '1,2,0,1:3,:' })")
    rows = page.get_by_test_id("grid").locator(".side span")
    wait_until(lambda: rows.all_text_contents() == ["1", "2"])
    before = page.url
    field = page.get_by_label("Dimension 1, of 3")
    field.fill("7")
    field.press("Enter")
    page.get_by_test_id("toast").get_by_text("7 in the index").wait_for()
    wait_until(lambda: page.url == before)

    # As .npy: the slice, a complex tensor, a large one.
    for sel, shape, kind in (("", (2, 2), "f"), ("wave:out", (2, 3), "c"), ("large:value", (2048, 512), "f")):
        if sel:
            page.evaluate("sel => window.__tensonde.app.select(sel)", sel)
            wait_until(lambda sel=sel: page.get_by_test_id("tensor-address").input_value() == sel)
            shown.wait_for()
        with page.expect_download() as download:
            page.locator("a[download]").click()
        array = np.load(download.value.path())
        assert (array.shape, array.dtype.kind) == (shape, kind)

    # Far inside of the large one, by the tile.
    page.get_by_test_id("grid").evaluate("grid => grid.scrollTo(0, 2000 * 20)")
    wait_until(lambda: "1.02" in page.get_by_test_id("grid").text_content())

    # Nothing selected: what this run is.
    page.get_by_test_id("whole-run").click()
    page.get_by_test_id("run-facts").get_by_text("train.py").first.wait_for()
