"""A compiled model opens with the graph that was compiled, in the program's words: modules folded, parameters and inputs by their own names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from test_debugging import open_run

from conftest import Desk, wait_until

COMPILED = """
    import torch, torch.nn as nn
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.act, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)
        def forward(self, x):
            return x + self.down(self.act(self.up(self.norm(x))))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.Sequential(Block(), nn.Dropout(0.1), Block())
            self.head = nn.Linear(16, 4)
        def forward(self, image):
            return self.head(self.blocks(image))

    net = Net()
    fast = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(5):
        x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
        loss = nn.functional.cross_entropy(fast(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
PARTS = ("norm", "up", "act", "down")
OUTLINE = """() => {
  const { name, kind, parent, n, root, children, source_id, sources } = window.__tensonde.app.place.outline;
  const inside = (scope) => children[name.indexOf(scope, n)].filter((item) => item >= n).map((item) => name[item]);
  return { nodes: name.slice(0, n), kinds: kind.slice(0, n), inside: { '': children[root].map((item) => name[item]), blocks: inside('blocks'), first: inside('blocks.0') }, source: source_id, sources };
}"""


def test_a_compiled_model_is_shown_in_the_words_of_the_program(
    desk: Desk, page: Any, boxes: Callable[[], dict[str, Any]]
) -> None:
    ran = desk.tensonde("run", "-q", "--no-experiments", desk.script("train.py", COMPILED))
    assert ran.process.wait(300) == 0, ran.said
    _, url = desk.hub()
    open_run(page, url, boxes)
    wait_until(lambda: page.evaluate("window.__tensonde.app.place.outline?.source_id")).startswith("compiled")
    seen = page.evaluate(OUTLINE)

    # By their own names, nothing by the compiler's.
    parts = dict(zip(seen["nodes"], seen["kinds"], strict=True))
    assert parts["blocks.0.up.weight"] == parts["head.bias"] == "parameter", parts
    assert parts["image"] == "input", parts
    assert not [name for name in parts if "primals" in name or "tangents" in name or name.startswith("arg")], parts
    assert sum(kind == "op" for kind in seen["kinds"]) > 12, parts  # no stub

    # Grouped by module, in the order in which they run, and folded: the picture has scopes, no op of the inside of a block.
    assert seen["inside"]["blocks"] == ["blocks.0", "blocks.1", "blocks.2"], seen["inside"]
    assert seen["inside"]["first"] == ["blocks.0.norm", "blocks.0.up", "blocks.0.act", "blocks.0.down"], seen["inside"]
    assert not [name for name in boxes() if name.startswith("blocks.0.") and "/" in name], boxes()
    rows = page.get_by_test_id("tree-row")
    assert {"head", "blocks"} <= {row.get_attribute("data-name") for row in rows.all()}

    # The backward pass, too: what the forward pass saved is folded, by the names that it has there.
    page.get_by_role("group", name="Phase").get_by_text("Backward").click()
    wait_until(lambda: any(name.endswith(" (saved)") for name in page.evaluate(OUTLINE)["nodes"]))
    assert not [name for name in page.evaluate(OUTLINE)["nodes"] if "primals" in name]
    page.get_by_role("group", name="Phase").get_by_text("Forward").click()

    # Eager mode is one choice away: the modules in their order, each with its parameters, settings and line.
    which = page.get_by_label("Which graph")
    assert "modules, as in eager mode" in which.text_content()
    which.select_option("module")
    wait_until(lambda: page.evaluate("window.__tensonde.app.place.outline.source_id") == "module")
    wait_until(lambda: {"blocks", "head"} <= set(boxes()))
    leaves = [
        name
        for name, kind in zip(*map(page.evaluate(OUTLINE).get, ("nodes", "kinds")), strict=True)
        if kind == "module"
    ]
    assert leaves == [
        *(f"blocks.0.{part}" for part in PARTS),
        "blocks.1",
        *(f"blocks.2.{part}" for part in PARTS),
        "head",
    ]
    page.evaluate("window.__tensonde.app.select('blocks.2.down')")
    details = page.get_by_test_id("details")
    details.get_by_role("heading", name="blocks.2.down").wait_for()
    assert "out_features" in details.text_content()
    assert "train.py" in page.get_by_test_id("details-line").text_content()
    assert details.get_by_test_id("port").count() == 2
    assert "blocks.2.act/relu#0" in details.get_by_test_id("neighbour").first.text_content()
