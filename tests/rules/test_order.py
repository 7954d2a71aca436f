"""The order of rules is written down, and every module with rules stands in it."""

from __future__ import annotations

from pathlib import Path

import tensonde.diagnose.rules as rules


def test_every_module_is_listed_once() -> None:
    root = Path(rules.__file__).parent
    files = [path.relative_to(root).with_suffix("") for path in root.rglob("*.py") if path.name != "__init__.py"]
    assert sorted(rules.ORDER) == sorted(".".join(path.parts) for path in files)
