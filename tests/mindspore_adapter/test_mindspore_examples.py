"""The examples of examples/mindspore, under Tensonde: they print what they print alone, which stands beside them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("mindspore")

from launch import Ran, cli
from tensonde.store.sources import open_source

EXAMPLES = Path(__file__).parents[2] / "examples" / "mindspore"
NAMES = sorted(path.stem for path in (EXAMPLES / "expected").glob("*.txt"))


def run(folder: Path, *words: str) -> Ran:
    return cli("run", "-q", *words, cwd=folder, env={"GLOG_v": "3"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.json")]:
        shutil.copy(path, tmp_path)
    return tmp_path


def test_every_example_has_an_expected_output() -> None:
    scripts = {path.stem for path in EXAMPLES.glob("*.py")} - {"small"}
    assert scripts == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_what_it_prints_alone(name: str, folder: Path) -> None:
    done = run(folder, f"{name}.py")
    assert done.code == 0, done.err
    assert done.out.replace(f"{folder}/", "") == (EXAMPLES / "expected" / f"{name}.txt").read_text()


def test_the_dump_json_of_mindspore(folder: Path) -> None:
    done = run(folder, "--dump-config", "dump.json", "--record", "out", "train.py")
    assert done.code == 0, done.err
    with open_source(folder / "dump") as source:
        kept = {entry.name for entry in source.entries}
    assert any("fc2" in name for name in kept), kept
