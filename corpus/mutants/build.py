"""Builds the mutants: `python corpus/mutants/build.py OUT` writes OUT/<base>__<name>.py."""

from __future__ import annotations

import difflib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Mutant:
    """`changed` are the lines of the difference, of a deletion those around it; `lines` also those that `also` accepts."""

    spec: dict[str, Any]
    text: str
    changed: tuple[int, ...]
    lines: tuple[int, ...]


def mutants() -> dict[str, Mutant]:
    """By id."""
    return {spec["id"]: build(spec) for spec in json.loads((HERE / "specs.json").read_text())}


def build(spec: dict[str, Any]) -> Mutant:
    source = text = (HERE / "bases" / f"{spec['base']}.py").read_text()
    for old, new in spec["edits"]:
        if text.count(old) != 1:
            raise ValueError(f"{spec['id']}: {old!r} stands {text.count(old)} times in the text, not once")
        text = text.replace(old, new)
    before, after = source.splitlines(), text.splitlines()
    changed: set[int] = set()
    for tag, _, _, first, last in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag in ("replace", "insert"):
            changed |= set(range(first + 1, last + 1))
        elif tag == "delete":
            changed |= {first, first + 1}
    also = {k + 1 for snippet in spec["also"] for k, line in enumerate(after) if snippet in line}
    compile(text, spec["id"], "exec")
    return Mutant(spec, text, tuple(sorted(changed)), tuple(sorted(changed | also)))


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, mutant in mutants().items():
        (out / f"{name}.py").write_text(mutant.text)
