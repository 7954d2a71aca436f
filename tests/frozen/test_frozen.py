"""Recordings of the corpus get the findings that they got when they were frozen. Neither torch nor a training is needed.

A change of rules that is meant to change findings freezes anew: `python corpus/run.py --keep DIR`, then `corpus/freeze.py store DIR`
and `corpus/freeze.py pack DIR tests/frozen/recordings`. Read the difference before you commit it.
"""

from __future__ import annotations

import importlib.util
import json
import lzma
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).resolve().parent
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in (HERE / "recordings").glob("*.tar.xz"))


@pytest.fixture(scope="session")
def freeze() -> ModuleType:
    spec = importlib.util.spec_from_file_location("freeze", HERE.parents[1] / "corpus" / "freeze.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_recordings_of_all_kinds() -> None:
    kinds = [name.partition("-")[0] for name in NAMES]
    assert len(kinds) >= 100
    assert min(kinds.count("bug"), kinds.count("fixed")) >= 40


@pytest.mark.parametrize("name", NAMES)
def test_findings_are_as_they_were(freeze: ModuleType, tmp_path: Path, name: str) -> None:
    with lzma.open(HERE / "recordings" / f"{name}.tar.xz") as file, tarfile.open(fileobj=file) as archive:
        archive.extractall(tmp_path, filter="data")
    assert freeze.findings_of(tmp_path) == json.loads((HERE / "recordings" / f"{name}.json").read_text())
