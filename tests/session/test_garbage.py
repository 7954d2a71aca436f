"""Collections of garbage while Tensonde makes many objects: rarer, and afterwards as the program had them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tensonde.session.garbage import NEVER, RARER, Unhurried


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds, enabled = gc.get_threshold(), gc.isenabled()
    gc.set_threshold(700, 10, 10)
    gc.enable()
    yield
    gc.set_threshold(*thresholds)
    (gc.enable if enabled else gc.disable)()


def test_collections_are_rarer_and_then_as_before() -> None:
    with Unhurried():
        assert gc.get_threshold() == (RARER * 700, NEVER, NEVER)
    assert gc.get_threshold() == (700, 10, 10)


def test_begun_twice_ends_once() -> None:
    calm = Unhurried()
    calm.begin()
    calm.begin()
    calm.end()
    assert gc.get_threshold() == (700, 10, 10)
    calm.end()
    assert gc.get_threshold() == (700, 10, 10)


def test_thresholds_that_the_program_sets_meanwhile_stay() -> None:
    with Unhurried():
        gc.set_threshold(50, 5, 5)
    assert gc.get_threshold() == (50, 5, 5)


def test_collections_that_the_program_switched_off_stay_off() -> None:
    gc.disable()
    with Unhurried():
        assert gc.get_threshold() == (700, 10, 10)
    assert not gc.isenabled()


def test_ends_where_the_work_fails() -> None:
    with pytest.raises(ValueError, match="no"), Unhurried():
        raise ValueError("no")
    assert gc.get_threshold() == (700, 10, 10)
