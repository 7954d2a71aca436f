"""axe-core finds nothing serious, in both themes: names of controls, roles, contrast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import Desk, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "focal_loss.py"
AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
RUN = """async () => (await axe.run(document, { resultTypes: ['violations'] })).violations
  .filter((one) => ['serious', 'critical'].includes(one.impact))
  .map((one) => [one.id, one.nodes.slice(0, 6).map((node) => `${node.html.slice(0, 160)} ${node.any[0]?.message ?? ''}`)])"""


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed (npm ci in web/)")
def test_nothing_serious_is_in_the_way_of_anyone(desk: Desk, page: Any) -> None:
    ran = desk.tensonde("run", "-q", "--no-experiments", "--record", ".tensonde/runs/bad", str(EXAMPLE))
    assert ran.process.wait(300) == 0, ran.said
    _, url = desk.hub()
    page.set_viewport_size({"width": 1280, "height": 800})
    found: dict[str, Any] = {}
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.goto(url)
        page.get_by_test_id("run").first.wait_for()
        page.evaluate("theme => window.__tensonde.app.setTheme(theme)", theme)
        page.evaluate(AXE.read_text())
        found[f"{theme} runs"] = page.evaluate(RUN)
        page.get_by_test_id("run").first.click()
        wait_until(lambda: page.evaluate("window.__tensonde.boxes().length"))
        # The tensor of a hit, with what is not finite in its table.
        page.evaluate(
            "(({ site, step }) => window.__tensonde.app.select(site, { step }))(window.__tensonde.app.place.hits[0])"
        )
        page.get_by_test_id("port").first.wait_for()
        page.get_by_test_id("tab-tensor").click()
        page.get_by_test_id("grid").locator("b.bad").first.wait_for()
        for tab in ("tensor", "hits", "findings", "health", "charts", "log"):
            page.get_by_test_id(f"tab-{tab}").click()
            page.wait_for_timeout(300)
            found[f"{theme} {tab}"] = page.evaluate(RUN)
            wide = page.evaluate(
                "document.documentElement.scrollWidth > innerWidth || document.body.scrollHeight > innerHeight"
            )
            assert not wide, f"{tab} is larger than the window"
    # The theme is there before the program is: no flash of the other one.
    page.route("**/assets/index-*.js", lambda route: route.abort())
    page.evaluate("localStorage.removeItem('tensonde.theme')")
    for theme, light in (("dark", False), ("light", True)):
        page.emulate_media(color_scheme=theme)
        page.goto(url)
        back = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        assert (min(back[:3]) > 200) is light, f"{theme}: {back}"
    problems = [f"{where}: {id}: {html}" for where, some in found.items() for id, nodes in some for html in nodes]
    assert not problems, "\n".join(problems)
