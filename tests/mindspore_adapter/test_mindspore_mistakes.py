"""Mistakes of the corpus that the adapter's own facts lead to: named at their line, and the mended scripts are left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("mindspore")

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose
from tensonde.model.finding import Finding

CORPUS = Path(__file__).resolve().parents[2] / "corpus" / "mindspore" / "bugs"
CASES = {
    "sil_head_replaced_after_optimizer": "optimizer-holds-old-parameters",
    "sil_layer_built_in_construct": "layer-made-in-forward",
    "sil_loss_rebuilt_from_number": "gradient-all-zero",
    "sil_backbone_rebuilt_from_numbers": "no-gradient",
    "sil_accumulated_gradients_never_cleared": "gradients-never-cleared",
    "sil_float16_sum_of_squares": "overflow-in-float16",
    "sil_has_aux_forgotten": "outputs-differentiated-too",
}


def alarms(foundry: Foundry, script: Path, folder: Path) -> list[Finding]:
    folder.mkdir()
    ran = foundry.watched(script.read_text(), folder)
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    return [finding for finding in diagnose(ran.recording) if finding.severity != "info"]


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_named_and_its_mending_is_not(name: str, foundry: Foundry, tmp_path: Path) -> None:
    lines = json.loads((CORPUS / name / "meta.json").read_text())["culprit"]["all_defect_lines"]
    (first, *_) = alarms(foundry, CORPUS / name / "train.py", tmp_path / "bug")
    assert first.rule == CASES[name]
    assert first.source is not None
    if name == "sil_backbone_rebuilt_from_numbers":  # the line that cuts it off is not known, the module is
        assert "body never gets a gradient" in first.title
    else:
        assert first.source.line in lines
    assert alarms(foundry, CORPUS / name / "fixed.py", tmp_path / "mended") == []
