"""Ctrl-C without a terminal: when it pauses, when it interrupts, and whose handler is left alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tensonde.debugger.interrupt import Interrupt


class Log:
    def __init__(self) -> None:
        self.pauses = 0
        self.said: list[str] = []

    def pause(self) -> None:
        self.pauses += 1


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def interrupt(log: Log) -> Iterator[Interrupt]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    made = Interrupt(log.pause, log.said.append)
    made.install()
    yield made
    made.remove()
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_once_asks_for_a_pause(interrupt: Interrupt, log: Log) -> None:
    press()
    assert log.pauses == 1
    assert "next permitted point" in log.said[0]


def test_twice_at_once_interrupts(interrupt: Interrupt, log: Log) -> None:
    press()
    with pytest.raises(KeyboardInterrupt):
        press()
    assert log.pauses == 1


def test_twice_with_time_between_pauses_twice(interrupt: Interrupt, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    press()
    monkeypatch.setattr("time.monotonic", lambda: float("inf"))
    press()
    assert log.pauses == 2


def test_at_the_prompt_it_interrupts_at_once(interrupt: Interrupt, log: Log) -> None:
    with interrupt.talking(), pytest.raises(KeyboardInterrupt):
        press()
    assert log.pauses == 0


def test_a_stop_in_between_starts_the_count_anew(interrupt: Interrupt, log: Log) -> None:
    press()
    with interrupt.talking():
        pass
    press()
    assert log.pauses == 2


def test_it_comes_back_after_something_put_pythons_handler_there(interrupt: Interrupt, log: Log) -> None:
    with interrupt.talking():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    press()
    assert log.pauses == 1


def test_removing_restores_what_was_there(interrupt: Interrupt) -> None:
    interrupt.remove()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_scripts_own_handler_is_left_alone(log: Log) -> None:
    def own(number: int, frame: Any) -> None:
        pass

    before = signal.signal(signal.SIGINT, own)
    try:
        made = Interrupt(log.pause, log.said.append)
        made.install()
        made.remove()
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
