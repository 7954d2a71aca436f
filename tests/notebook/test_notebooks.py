"""Real notebooks, executed by a real kernel."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch import SOURCE, skip_if_quick

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

MODEL = """import hashlib, torch
from torch import nn
def train(steps, broken=-1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        p = model(torch.randn(5, 4)).softmax(1)
        p = p * 0 if step == broken else p
        loss = -p.log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
"""
OWN_CELL = """%%tensonde --budget off
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    out = torch.relu(net(torch.randn(4, 3)))
    loss = torch.log(out).sum()
    opt.zero_grad(); loss.backward(); opt.step()
"""


class Kernel:
    """A kernel that runs one cell after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        notebook = nbformat.v4.new_notebook()
        self.client = nbclient.NotebookClient(notebook, timeout=120, allow_errors=True, resources={"metadata": {"path": str(folder)}})  # fmt: skip

    def run(self, text: str) -> list[Any]:
        cell = nbformat.v4.new_code_cell(text)
        self.client.nb.cells.append(cell)
        self.client.execute_cell(cell, len(self.client.nb.cells) - 1)
        return list(cell.outputs)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    skip_if_quick()
    folder = tmp_path_factory.mktemp("notebook")
    before = dict(os.environ)
    os.environ.update({"PYTHONPATH": str(SOURCE), "TENSONDE_STRICT": "1", "IPYTHONDIR": str(folder / "ipython")})
    made = Kernel(folder)
    try:
        with made.client.setup_kernel():
            for text in ("%load_ext tensonde", MODEL):
                assert [one for one in made.run(text) if one["output_type"] == "error"] == []
            yield made
    finally:
        os.environ.clear()
        os.environ.update(before)


def said(outputs: list[Any], kind: str = "text/plain") -> str:
    return "\n".join(
        one["text"] if one["output_type"] == "stream" else one.get("data", {}).get(kind, "") for one in outputs
    )


def test_findings_are_shown_at_lines_of_the_cell(kernel: Kernel) -> None:
    outputs = kernel.run(OWN_CELL)
    text, html = said(outputs), said(outputs, "text/html")
    line = next(k for k, one in enumerate(OWN_CELL.splitlines(), 1) if "torch.log" in one)
    assert f"this cell, line {line}: loss = torch.log(out).sum()" in text
    assert f"this cell, line {line}" in html
    assert "→" in html


def test_findings_in_another_cell_name_that_cell(kernel: Kernel) -> None:
    outputs = kernel.run("%%tensonde --budget off\ntrain(4, broken=2)")
    line = next(k for k, one in enumerate(MODEL.splitlines(), 1) if "p.log()" in one)
    assert re.search(rf"In\[2\], line {line}: loss = -p.log", said(outputs))


def test_a_watched_cell_computes_what_a_bare_one_does(kernel: Kernel) -> None:
    kernel.run("bare = train(20)")
    outputs = kernel.run("%%tensonde\nwatched = train(20)")
    assert "no problem found" in said(outputs)
    assert "True" in said(kernel.run("print(bare == watched == train(20))"))


def test_a_line_tells_how_far_the_training_is(kernel: Kernel) -> None:
    outputs = kernel.run("%%tensonde\n_ = train(300)")
    assert re.search(r"tensonde: step \d+, loss [\d.]+", said(outputs))
    assert "overhead" in said(outputs)


def test_the_cell_ends_after_so_many_steps(kernel: Kernel) -> None:
    outputs = kernel.run("%%tensonde --steps 3\ntrain(1000000)\n")
    assert "3 steps watched" in said(outputs)
    assert "still here" in said(kernel.run("print('still here')"))


def test_an_exception_is_shown_and_explained(kernel: Kernel) -> None:
    outputs = kernel.run("%%tensonde\nnet = torch.nn.Linear(3, 2)\nnet(torch.randn(4, 5))")
    whole = said(outputs) + str(outputs)
    assert "mat1 and mat2" in whole
    assert "this cell, line 3" in said(outputs)


def test_the_kernel_survives_an_interrupt(kernel: Kernel) -> None:
    manager = kernel.client.km

    def interrupt() -> None:
        until = time.monotonic() + 60
        while not (kernel.folder / "begun").exists() and time.monotonic() < until:
            time.sleep(0.05)
        asyncio.run(manager.interrupt_kernel())

    thread = threading.Thread(target=interrupt)
    thread.start()
    outputs = kernel.run(
        "%%tensonde\nimport pathlib\nfor k in range(1000000):\n    train(5)\n    pathlib.Path('begun').touch()"
    )
    thread.join()
    assert "KeyboardInterrupt" in str(outputs)
    assert "no problem found" in said(kernel.run("%%tensonde\n_ = train(5)"))


@pytest.mark.parametrize(("line", "sentence"), [("--bugdet 3", "bugdet"), ("--watch '** nrm > 3'", "nrm")])
def test_wrong_options_are_told_in_a_sentence(kernel: Kernel, line: str, sentence: str) -> None:
    outputs = kernel.run(f"%%tensonde {line}\nprint('ran')")
    assert sentence in said(outputs)
    assert "Traceback" not in str(outputs)
    assert "ran\n" not in said(outputs)


def test_a_cell_without_a_training_says_so(kernel: Kernel) -> None:
    assert "no training was seen in this cell" in said(kernel.run("%%tensonde\nx = 1"))


def test_the_report_of_a_cell_can_be_viewed(kernel: Kernel) -> None:
    outputs = kernel.run("import tensonde\ntensonde.view()")
    assert "<iframe" in said(outputs, "text/html")


def test_after_cells_the_kernel_may_record_by_itself(kernel: Kernel) -> None:
    """The last test: from here on the kernel is watched."""
    outputs = kernel.run("import tensonde\ntensonde.attach(torch.nn.Linear(2, 2))\n_ = train(7)\ntensonde.view()")
    assert "<iframe" in said(outputs, "text/html")
    assert "7" in said(kernel.run("print(tensonde.api.current().session.steps.step)"))
    assert "is watched by Tensonde already" in said(kernel.run("%%tensonde\n_ = train(2)"))
