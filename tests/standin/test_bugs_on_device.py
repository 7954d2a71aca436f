"""Bugs of the corpus on the stand-in, where everything that a program makes lies: they are named as on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

pytestmark = [pytest.mark.usefixtures("standin"), pytest.mark.timeout(180)]

ROOT = Path(__file__).parent.parent.parent

QUICK = ["nan_log_of_zero_probability", "sil_all_weights_zero_init", "sil_zero_grad_missing"]
BUGS = [
    *QUICK,
    "amp_clip_before_unscale",
    "nan_division_by_zero_count",
    "sil_clip_norm_far_too_small",
    "sil_constant_init_symmetry",
    "sil_log_softmax_over_batch_dim",
    "sil_padding_idx_hits_real_word",
    "sil_same_batch_every_step",
    "sil_targets_not_shifted",
    "sil_validation_not_normalised",
]
"""Of those that the stand-in has the ops for."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in BUGS])
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
    assert any(one.source and one.source.line in wanted for one in serious[:3]), [(o.rule, o.source) for o in serious]
