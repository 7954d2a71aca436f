"""Steps that go too far: told on trainings whose curvature is known, and not on noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensonde.watch.overshoot import UPDATES, Overshoot, Overshoots


def descend(
    rate: float | Callable[[int], float], *, steps: int = 200, noise: float = 0.5, seed: int = 0
) -> Overshoot | None:
    """Gradient descent with noisy gradients on `1 + |x|²/2` in a hundred dimensions, whose curvature is 1: it diverges at rates above 2."""
    draw = np.random.default_rng(seed)
    window, x = Overshoots(), draw.normal(size=100) / 10
    update, own = np.zeros(100), np.zeros(100)
    for step in range(steps):
        gradient = x + draw.normal(size=100) * noise / 10
        if step:
            found = window.add(step, float(update @ gradient), float(-update @ own), float(1 + x @ x / 2))
            if found is not None:
                return found
        update, own = -(rate(step) if callable(rate) else rate) * gradient, gradient
        x = x + update
    return None


@pytest.mark.parametrize("seed", range(10))
def test_silent_where_steps_are_short_enough(seed: int) -> None:
    assert descend(0.1, seed=seed) is None
    assert descend(0.1, steps=1000, noise=5.0, seed=seed) is None  # noise that is far larger than the slope


@pytest.mark.parametrize("seed", range(5))
def test_told_before_the_loss_doubles(seed: int) -> None:
    """A rate that grows by 1 % per step, up to the limit of 2 and beyond."""
    found = descend(lambda step: 0.2 * 1.01**step, steps=400, seed=seed)
    assert found is not None
    assert 0.2 * 1.01**found.step < 2.0
    assert found.loss < 2.0


def test_no_part_of_a_loss_without_a_sign() -> None:
    window = Overshoots()
    assert all(window.add(step, 1.0, 1.0, (-1.0) ** step) is None for step in range(3 * UPDATES))


def test_what_is_not_finite_begins_anew() -> None:
    window = Overshoots()
    for step in range(UPDATES - 1):
        assert window.add(step, 1.0, 2.0, 10.0) is None
    assert window.add(UPDATES, float("nan"), 2.0, 10.0) is None
    assert window.add(UPDATES + 1, 1.0, 2.0, 10.0) is None
