"""Learning rates of MindSpore's schedules, computed without running an op, are those that MindSpore computes."""

from __future__ import annotations

from typing import Any

import pytest

mindspore = pytest.importorskip("mindspore")

from mindspore import Tensor, nn

from tensonde.adapters.mindspore.observers.schedules import FORMULAS, rate_at

SCHEDULES = [
    *(kind(0.1, 0.9, 4, stair) for kind in (nn.ExponentialDecayLR, nn.NaturalExpDecayLR, nn.InverseDecayLR) for stair in (False, True)),
    nn.CosineDecayLR(0.01, 0.1, 4),
    nn.PolynomialDecayLR(0.1, 0.01, 4, 0.5),
    nn.PolynomialDecayLR(0.1, 0.01, 4, 0.5, True),
    nn.WarmUpLR(0.1, 4),
]  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: type(schedule).__name__)
def test_a_rate_is_mindspores(schedule: Any) -> None:
    for step in (0, 1, 3, 4, 7, 9):
        assert rate_at(schedule, step) == pytest.approx(float(schedule(Tensor(step, mindspore.int32))), rel=1e-5)


def test_every_schedule_of_mindspore_is_known() -> None:
    assert set(nn.learning_rate_schedule.__all__) == set(FORMULAS)


def test_a_schedule_of_the_programs_own_is_not_run() -> None:
    class Own(nn.learning_rate_schedule.LearningRateSchedule):
        def construct(self, global_step: Any) -> Any:
            raise AssertionError("run")

    assert rate_at(Own(), 3) is None
