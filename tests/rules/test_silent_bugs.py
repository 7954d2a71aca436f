"""Each rule of silent bugs fires on a tiny training with that defect, names its line, and is silent on near misses."""

from __future__ import annotations

from pathlib import Path

import later_trainings
import pytest
import silent_trainings
import wider_trainings
from silent_trainings import marked, training
from strict_facts import misfits

from launch import Foundry, Ran
from tensonde.diagnose.diagnose import diagnose
from tensonde.model.finding import Finding

BUGS = silent_trainings.BUGS | later_trainings.BUGS | wider_trainings.BUGS
NEAR_MISSES = silent_trainings.NEAR_MISSES | later_trainings.NEAR_MISSES | wider_trainings.NEAR_MISSES


def findings(ran: Ran) -> list[Finding]:
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    assert misfits(ran.rank.facts) == []
    return [finding for finding in diagnose(ran.recording) if finding.severity != "info"]


@pytest.mark.parametrize("name", BUGS)
def test_the_defect_is_named(foundry: Foundry, tmp_path: Path, name: str) -> None:
    rule, body = BUGS[name]
    script = training(body)
    found = findings(foundry.watched(script, tmp_path))
    assert found, "nothing was found"
    assert found[0].rule == rule, [f"{finding.rule}: {finding.title}" for finding in found]
    line = marked(script)
    if line is not None:
        assert found[0].source is not None
        assert found[0].source.line == line, found[0]


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_is_left_alone(foundry: Foundry, tmp_path: Path, name: str) -> None:
    found = findings(foundry.watched(training(NEAR_MISSES[name]), tmp_path))
    assert not found, [f"{finding.rule}: {finding.title} {finding.evidence}" for finding in found]
