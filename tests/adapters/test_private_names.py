"""Private names of torch are listed in one place, with what happens without them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

from tensonde.adapters.torch.private import NAMES

SOURCE = Path(__file__).resolve().parents[2] / "src" / "tensonde"
ADAPTER = SOURCE / "adapters" / "torch"
PYTHONS = {
    "_exit",
    "_getframe",
    "_fields",
    "_args",
    "_kwargs",
    "_replace",
    "_asdict",
    "_",
    "_default",
    "_like",
    "_abc_impl",
    "_frozen_importlib",
    "_filters_mutated",
    "_showwarnmsg",
}
"""Private names of Python's own (`sys._getframe`), of named tuples, and endings of names."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def dotted(node: ast.AST) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def own_names() -> set[str]:
    """Whatever Tensonde itself calls with an underscore."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                    found.add(name)
                case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                    found.add(name)
    return found


def used(tree: ast.AST, own: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "torch":
                for alias in names:
                    if any(is_private(part) for part in (*module.split("."), alias.name)):
                        yield f"{module}.{alias.name}"
            case ast.Import(names=names):
                yield from (n.name for n in names if n.name.startswith("torch.") and "._" in n.name)
            case ast.Attribute(attr=attr):
                whole = dotted(node)
                if whole is not None and whole.startswith("torch.") and is_private(attr):
                    yield whole
                elif is_private(attr) and attr not in own | PYTHONS and not attr.startswith("_tensonde"):
                    yield attr
            case ast.Constant(value=str(text)) if text.isidentifier() and is_private(text):
                if text not in own | PYTHONS and not text.startswith("_tensonde"):
                    yield text


def test_every_private_name_is_listed() -> None:
    own = own_names()
    listed = {*NAMES, *(name.rpartition(".")[2] for name in NAMES)}
    prefixes = {".".join(name.split(".")[:k]) for name in NAMES for k in range(1, name.count(".") + 1)}
    missing: dict[str, str] = {}
    for path in sorted(ADAPTER.rglob("*.py")):
        if path.name == "private.py":
            continue
        for name in used(ast.parse(path.read_text()), own):
            if not (name in listed or name in prefixes or name.rpartition(".")[2] in listed):
                missing[name] = str(path.relative_to(ADAPTER))
    shown = "\n".join(f"{name} ({where})" for name, where in sorted(missing.items()))
    assert not shown, (
        f"{shown}\nadd these to adapters/torch/private.py, with what they are for and what happens without them"
    )


def test_what_is_listed_is_used() -> None:
    text = "\n".join(path.read_text() for path in ADAPTER.rglob("*.py") if path.name != "private.py")
    text += (ADAPTER / "private.py").read_text().partition("\ndef ")[2]
    assert [name for name in NAMES if name.rpartition(".")[2] not in text] == []


def test_every_entry_says_what_for_and_what_without() -> None:
    assert all(what and without for what, without in NAMES.values())


def test_those_that_are_needed_are_there() -> None:
    for name, (_, without) in NAMES.items():
        if not without.startswith("needed") or not name.startswith("torch."):
            continue
        module, _, attribute = name.rpartition(".")
        parts: list[str] = [attribute]
        while True:
            try:
                found = importlib.import_module(module)
                break
            except ImportError:
                module, _, part = module.rpartition(".")
                parts.insert(0, part)
        for part in parts:
            found = getattr(found, part)
