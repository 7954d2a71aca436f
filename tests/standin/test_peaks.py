"""`tensonde check --memory`: the peak that is predicted against the one that the stand-in measures in a run without Tensonde."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry, Ran
from tensonde.diagnose.case import Case
from tensonde.model.facts import MemoryFact
from tensonde.model.memory import fits, peak_at

pytestmark = pytest.mark.usefixtures("standin")

HERE = Path(__file__).parent
BATCH, LARGER = 8, 24


def script(name: str, batch: int, more: str = "") -> str:
    return f"import sys; sys.path.append({str(HERE)!r})\nimport sized\nsized.run({name!r}, {batch}{more})\n"


def checked(foundry: Foundry, text: str, folder: Path, **more: object) -> MemoryFact:
    folder.mkdir()
    ran = foundry.watched(text, folder, budget=0.0, steps=4, memory=True, **more)  # type: ignore[arg-type]
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    fact = Case(ran.rank).facts.memory
    assert fact is not None
    return fact


def measured(foundry: Foundry, text: str, folder: Path) -> int:
    folder.mkdir()
    ran: Ran = foundry.bare(text, folder)
    assert ran.code == 0, ran.err
    return int(ran.out.split()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "cnn", "resnet", "unet", "gpt", "checkpointed", "accumulated"])
def test_the_peak_is_predicted(foundry: Foundry, tmp_path: Path, name: str) -> None:
    fact = checked(foundry, script(name, BATCH), tmp_path / "checked")
    assert fact.device == "standin:0"
    assert fact.peak == pytest.approx(measured(foundry, script(name, BATCH), tmp_path / "bare"), rel=0.02)
    assert sum(fact.uses.values()) == fact.peak
    assert fact.growth == 0
    larger = measured(foundry, script(name, LARGER), tmp_path / "larger")
    assert fact.batch == BATCH
    assert peak_at(fact, LARGER) == pytest.approx(larger, rel=0.05)
    fitting = fits(fact, larger)
    assert fitting is not None
    assert 0.8 * LARGER <= fitting <= 1.25 * LARGER or name == "mlp"  # whose peak is the optimizer's


@pytest.mark.slow
def test_what_a_step_leaves_behind_is_named(foundry: Foundry, tmp_path: Path) -> None:
    fact = checked(foundry, script("cnn", BATCH, ", keep=True"), tmp_path / "checked")
    assert fact.growth == 512  # one output of 8 x 10 numbers
    (keeper,) = fact.keepers
    line = next(k for k, text in enumerate((HERE / "sized.py").read_text().splitlines(), 1) if "# KEPT" in text)
    assert (keeper.name, keeper.line and keeper.line.line) == ("outputs", line)
