"""The order of rules is written down, they know each other by name only, and no two wait for each other."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import tensonde.diagnose.rules as rules
from tensonde.diagnose.rule import RULES

ROOT = Path(rules.__file__).parent
FILES = [path for path in ROOT.rglob("*.py") if path.name != "__init__.py"]


def test_every_module_is_listed_once() -> None:
    names = [path.relative_to(ROOT).with_suffix("") for path in FILES]
    assert sorted(rules.ORDER) == sorted(".".join(name.parts) for name in names)


def test_rules_do_not_call_rules() -> None:
    """`unless` says which rules say the same better; shared reasoning is in `analysis`."""
    for path in FILES:
        tree = ast.parse(path.read_text())
        own = {
            rule.check.__name__ for rule in RULES if rule.check.__module__.endswith(f".{path.parent.name}.{path.stem}")
        }
        called = {
            node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not own & called, path
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not any(str(module).startswith("tensonde.diagnose.rules") for module in imported), path


def test_rules_that_silence_others_are_rules() -> None:
    waits = {rule.name: rule.unless for rule in RULES}
    assert {name for names in waits.values() for name in names} <= waits.keys()
    list(TopologicalSorter(waits).static_order())  # raises where two wait for each other
