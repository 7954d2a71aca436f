"""A recording in the browser: dumped tensors and which step they are of, a rank switched with the place kept, search, the list of runs."""

from __future__ import annotations

import json
import shutil
from typing import Any

from test_comparing import TRAINING

from conftest import Desk, wait_until


def test_a_recording_is_read_and_keeps_its_place(desk: Desk, page: Any) -> None:
    words = ("run", "-q", "--dump", "head", "--dump-steps", "0,2-3", "--record", ".tensonde/runs/kept")
    ran = desk.tensonde(*words, desk.script("train.py", TRAINING))
    assert ran.process.wait(300) == 0, ran.said
    folder = desk.folder / ".tensonde" / "runs" / "kept"
    shutil.copytree(folder / "rank0", folder / "rank1")  # as if there were two
    session = json.loads((folder / "rank1" / "session.json").read_text())
    (folder / "rank1" / "session.json").write_text(json.dumps({**session, "rank": 1}))
    told = {"experiment": "constant", "question": "Is the model better than a constant?", "step": 50}
    facts = json.loads((folder / "rank0" / "facts.json").read_text())
    facts["answers"] = [{**told, "healthy": False, "why": "it is worse", "numbers": {"ratio": 1.25}, "module": "head"}]
    (folder / "rank0" / "facts.json").write_text(json.dumps(facts))
    _, url = desk.hub()

    # Who comes with a wrong token gets a page, not a line of JSON.
    page.goto(url.replace("a-token", "b-token"))
    assert "terminal" in page.text_content("p:last-of-type")

    # A link to what is not here says so, beside what is.
    page.goto(url)
    page.goto(f"{url.split('?')[0]}#/run/gone/rank0?sel=head")
    page.get_by_role("alert").get_by_text("There is no run gone").wait_for()
    page.get_by_test_id("run").filter(has_text="kept").wait_for()
    assert page.evaluate("window.toasts") == []

    page.goto(url)
    row = page.get_by_test_id("run").filter(has_text="kept")
    assert "train.py" in row.text_content()
    page.get_by_test_id("filter-runs").fill("nothing like it")
    wait_until(lambda: page.get_by_test_id("run").count() == 0)
    page.get_by_test_id("filter-runs").fill("kept finished")
    row.click()
    wait_until(lambda: page.evaluate("window.__tensonde.boxes().length"))
    assert "train.py" in page.get_by_test_id("run-facts").text_content()

    # A class of modules, modules before ops.
    page.locator("#tree-search").fill("kind:Linear")
    wait_until(lambda: page.get_by_test_id("tree-row").first.get_attribute("data-name") in ("encoder.0", "head"))
    page.locator("[data-testid=tree-row][data-name=head]").click()
    page.locator("#tree-search").fill("")

    # Kept at steps 0, 2 and 3: at step 5 the page says so and leads there; "previous" says which step it is.
    page.evaluate("window.__tensonde.app.go({ step: 5 })")
    kept = page.get_by_test_id("kept-step")
    wait_until(lambda: kept.all_text_contents() == ["Step 0", "Step 2", "Step 3"])
    kept.last.click()
    page.get_by_test_id("compare").select_option("previous")
    page.get_by_text("step 2, the step before").wait_for()
    wait_until(lambda: page.get_by_test_id("heat-map").count() == 3)
    page.evaluate("window.__tensonde.app.go({ step: 2 })")
    page.get_by_text("step 0, the last one kept before step 2").wait_for()
    ages = page.get_by_test_id("age")
    wait_until(
        lambda: "2" in (steps := {age.get_attribute("data-step") for age in ages.all()}) and steps <= {"0", "1", "2"}
    )

    # What experiments asked while it trained, with the answers and the numbers.
    page.get_by_test_id("tab-health").click()
    asked = page.locator("[data-testid=question][data-state=problem]")
    asked.wait_for()
    assert all(word in asked.text_content() for word in ("better than a constant", "it is worse", "ratio 1.25", "head"))
    page.get_by_test_id("tab-tensor").click()

    # A browser passes over changes of the URL that come too fast, as from a drag along the timeline: the page does not.
    page.evaluate("for (let k = 0; k < 600; k++) window.__tensonde.app.go({ step: k % 5 })")
    for step in (0, 1, 2, 3, 4, 2):
        page.evaluate("step => window.__tensonde.app.go({ step })", step)
        assert page.evaluate("window.__tensonde.app.route.step") == step
    wait_until(lambda: "step=2&" in page.url)

    # The other rank: the same selection, step, tab and comparison.
    before = page.url
    page.get_by_test_id("rank").select_option("rank1")
    wait_until(lambda: page.url == before.replace("rank0", "rank1"))
    wait_until(lambda: page.evaluate("window.__tensonde.graph()?.selection()?.name") == "head")
