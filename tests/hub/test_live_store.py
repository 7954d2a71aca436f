"""What a training tells live, as the hub keeps it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np

from tensonde.digest.layout import ROW
from tensonde.server.livestore import MOST_SCALARS, LiveStore
from tensonde.server.place import Place
from tensonde.server.reading import scalars
from tensonde.server.states import sketch


def test_every_loss_of_a_step_is_kept_and_what_is_told_again_is_not() -> None:
    store = LiveStore()
    store.add_scalars({"loss": [(0, 1.0), (0, 5.0)]})
    store.add_scalars({"loss": [(1, 2.0), (1, 6.0)]})
    store.add_scalars({"loss": [(0, 1.0), (0, 5.0), (1, 2.0), (1, 6.0)]})  # after a connection was lost
    steps, values = store.scalars()["loss"]
    assert (steps.tolist(), values.tolist()) == ([0, 0, 1, 1], [1.0, 5.0, 2.0, 6.0])


def test_whole_steps_are_dropped_from_a_long_history() -> None:
    store = LiveStore()
    for step in range(MOST_SCALARS):
        store.add_scalars({"loss": [(step, 1.0), (step, 5.0)]})
    steps, values = store.scalars()["loss"]
    assert len(steps) <= MOST_SCALARS
    assert (steps[0::2] == steps[1::2]).all()
    assert (values[0::2] == 1).all()
    assert (values[1::2] == 5).all()
    assert steps[-1] == MOST_SCALARS - 1


def test_a_curve_with_too_many_points_keeps_steps_whole() -> None:
    steps = np.repeat(np.arange(1000), 2)
    values = np.tile([1.4, 0.7], 1000) + np.repeat(np.sin(np.arange(1000)), 2) / 10
    place = SimpleNamespace(scalars=lambda: {"loss": (steps, values)})
    shown = scalars(cast(Place, place), "loss", 100)
    assert shown["thinned"]
    assert shown["step"][0::2] == shown["step"][1::2]
    assert min(shown["value"][0::2]) > max(shown["value"][1::2])


def test_the_last_step_is_that_of_the_last_digest() -> None:
    store = LiveStore()
    assert store.last_step == -1
    rows = np.zeros(3, ROW)
    rows["step"] = [7, 9, 8]
    store.add(np.arange(3), rows)
    assert store.last_step == 9


def test_the_sketch_of_a_gan_is_no_saw() -> None:
    steps = np.repeat(np.arange(60), 2)
    values = np.tile([1.4, 0.7], 60)
    assert np.allclose(sketch({"loss": (steps, values)}), 1.05)
    assert sketch({"loss": (np.arange(3), np.array([3.0, np.nan, 1.0]))}) == [3.0, "NaN", 1.0]
