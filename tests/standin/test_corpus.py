"""Bugs of the corpus on the stand-in, where everything that a program makes lies: they are named as on the CPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

pytestmark = [pytest.mark.usefixtures("standin"), pytest.mark.slow, pytest.mark.timeout(180)]

ROOT = Path(__file__).parent.parent.parent
sys.path.append(str(ROOT / "corpus"))

BUGS: list[str] = []


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_named(foundry: Foundry, tmp_path: Path, name: str) -> None:
    folder = ROOT / "corpus" / "bugs" / name
    meta = json.loads((folder / "meta.json").read_text())
    lines = (folder / "train.py").read_text().splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith(("import ", "from ")))
    lines[first] = f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import ondevice; {lines[first]}"
    ran = foundry.watched("\n".join(lines) + "\n", tmp_path, budget=0.05)
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    serious = [one for one in diagnose(ran.recording) if one.severity in ("error", "warning")]
    culprit = meta["culprit"]
    wanted = {
        culprit.get("line"),
        culprit.get("manifest_line"),
        meta.get("manifest_line"),
        *(culprit.get("all_defect_lines") or ()),
    }
    module = str(culprit.get("module") or "")
    named = [
        one.rule
        for one in serious[:3]
        if (one.source and one.source.line in wanted) or (module and one.site and one.site.startswith(module))
    ]
    assert named, [(one.rule, one.source, one.site) for one in serious]
