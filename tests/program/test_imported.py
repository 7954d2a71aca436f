"""Who waits for a module hears of it once its code has run, and the module is as it would be without that."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from tensonde.program.imported import when_imported


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    return tmp_path


def test_a_module_is_told_of_when_its_code_has_run(folder: Path) -> None:
    (folder / "heard_of.py").write_text("value = 3\n")
    seen: list[int] = []
    when_imported("heard_of", lambda module: seen.append(module.value))
    when_imported("heard_of", lambda module: seen.append(-module.value))
    assert seen == []
    module = importlib.import_module("heard_of")
    assert seen == [3, -3]
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert "exec_module" not in vars(module.__loader__)
    importlib.reload(module)
    assert seen == [3, -3]
    when_imported("heard_of", lambda module: seen.append(0))
    assert seen == [3, -3, 0]


def test_a_module_inside_a_package(folder: Path) -> None:
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("")
    (folder / "pack" / "inner.py").write_text("name = __name__\n")
    seen: list[str] = []
    when_imported("pack.inner", lambda module: seen.append(module.name))
    importlib.import_module("pack")
    assert seen == []
    importlib.import_module("pack.inner")
    assert seen == ["pack.inner"]


def test_a_module_that_fails_first(folder: Path) -> None:
    source = folder / "stumbles.py"
    source.write_text("1 / 0\n")
    seen: list[str] = []
    when_imported("stumbles", lambda module: seen.append(module.__name__))
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("stumbles")
    assert seen == []
    source.write_text("fine = True  # longer than before\n")
    importlib.invalidate_caches()
    importlib.import_module("stumbles")
    assert seen == ["stumbles"]


def test_a_module_that_is_not_there(folder: Path) -> None:
    when_imported("nowhere_at_all", lambda module: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("nowhere_at_all")
