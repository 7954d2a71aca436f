"""Two ranks of one training in the browser: side by side, stopped and moved together, the selection kept from rank to rank."""

from __future__ import annotations

from typing import Any

from conftest import Desk, wait_until
from two_ranks import RANKS


def test_two_ranks_are_seen_and_steered_together(desk: Desk, page: Any) -> None:
    hub, url = desk.hub()
    script = desk.script("train.py", RANKS)
    ran = desk.tensonde(
        "run", "--no-experiments", "--record", ".tensonde/runs/pair", script, "1000000", "end", TENSONDE_HUB=url
    )
    page.goto(url)
    page.get_by_test_id("run").filter(has_text="pair").click()
    page.get_by_test_id("tab-ranks").click()
    rows = page.get_by_test_id("rank-row")
    wait_until(lambda: {row.get_attribute("data-rank") for row in rows.all()} >= {"rank0", "rank1"})
    pair = [page.locator(f"[data-testid=rank-row][data-rank=rank{k}]") for k in (0, 1)]
    states = lambda: {row.get_attribute("data-state") for row in pair}  # noqa: E731

    page.get_by_test_id("pause-all").click()
    wait_until(lambda: states() == {"stopped"})
    steps = lambda: {row.locator("td").nth(2).text_content() for row in pair}  # noqa: E731
    wait_until(lambda: len(steps()) == 1)

    # One node further, by the button of the toolbar: both ranks, to the same node.
    page.get_by_test_id("next").click()
    wait_until(lambda: all("next at" in (row.text_content() or "") for row in pair))

    # The wrapper holds the module, which holds the layers.
    around = "name => { const o = window.__tensonde.app.place.outline; return o.name[o.parent[o.name.indexOf(name)]]; }"
    inside = wait_until(lambda: page.evaluate("window.__tensonde.app.place.outline?.name.includes('module')"))
    assert inside
    assert page.evaluate(around, "0") == "module"
    assert page.evaluate(around, "module") == "model"

    # The weights are equal on all ranks, the losses are not. The selection stays when the rank changes.
    page.evaluate("window.__tensonde.app.select('0.weight:value')")
    spread = page.get_by_test_id("spread")
    wait_until(lambda: (spread.text_content() or "").startswith("equal on all ranks"))
    heat = page.get_by_test_id("rank-heat")
    assert heat.get_attribute("data-rows") == str(rows.count())
    pair[1].get_by_role("button").click()
    wait_until(lambda: "/rank1?" in page.url and "0.weight:value" in page.url)
    page.evaluate("window.__tensonde.app.select('loss:value')")
    wait_until(lambda: (spread.text_content() or "").startswith("differs between ranks from step"))
    page.screenshot(path=desk.folder / "ranks.png")

    (desk.folder / "end").touch()
    page.get_by_test_id("continue-all").click()
    assert ran.process.wait(120) == 0, ran.said
    wait_until(lambda: states() == {"finished"})
    assert "have waited" in (page.get_by_test_id("slowest").text_content() or "")
    assert hub.process.poll() is None
