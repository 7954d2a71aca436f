"""The step counter, the guard and the options, each by itself."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from tensonde.errors import UsageError
from tensonde.session.guard import Guard
from tensonde.session.options import ENVIRONMENT, Options, parse_budget
from tensonde.session.steps import ABSENT, Steps

# -- steps ---------------------------------------------------------------------------------------------


def play(steps: Steps, optimizers: str) -> list[int]:
    """Lets optimizers step in this order; the step that each belonged to."""
    found = []
    for key in map(ord, optimizers):
        if steps.before_optimizer(key):
            steps.advance()
        found.append(steps.step)
        if steps.after_optimizer(key):
            steps.advance()
    return found


def known(*keys: str) -> Steps:
    steps = Steps()
    for key in keys:
        steps.optimizer_exists(ord(key))
    return steps


@pytest.mark.parametrize(
    ("exist", "order", "expected"),
    [
        ("a", "aaa", [0, 1, 2]),
        ("ab", "ababab", [0, 0, 1, 1, 2, 2]),
        ("ab", "aabaab", [0, 1, 1, 2, 3, 3]),
        ("ab", "aaabaaab", [0, 1, 2, 2, 3, 4, 5, 5]),
        ("ab", "abba", [0, 0, 1, 1]),
        ("abc", "abcabc", [0, 0, 0, 1, 1, 1]),
        ("ab", "a" * 8, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("", "aa", [0, 1]),
    ],
)
def test_rounds_of_optimizers(exist: str, order: str, expected: list[int]) -> None:
    assert play(known(*exist), order) == expected


def test_an_optimizer_unused_for_long_is_not_waited_for() -> None:
    steps = known("a", "b")
    play(steps, "a" * (ABSENT + 1))
    assert steps.step == ABSENT + 1
    assert not steps.before_optimizer(ord("a"))
    assert steps.after_optimizer(ord("a"))


def test_an_optimizer_that_comes_back_is_waited_for_again() -> None:
    steps = known("a", "b")
    play(steps, "a" * 8)
    at = steps.step
    assert play(steps, "babab") == [at, at, at + 1, at + 1, at + 2]


def test_an_optimizer_that_is_gone_is_forgotten() -> None:
    steps = known("a", "b")
    steps.optimizer_gone(ord("b"))
    assert play(steps, "aa") == [0, 1]
    steps.optimizer_gone(ord("a"))
    assert not steps.has_optimizer


def test_without_optimizers_a_forward_after_a_backward_begins_a_step() -> None:
    steps = Steps()
    assert not steps.before_forward()
    steps.after_backward()
    assert steps.before_forward()
    steps.advance()
    assert not steps.before_forward()
    steps.optimizer_exists(1)
    steps.after_backward()
    assert not steps.before_forward()


# -- guard ---------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSONDE_STRICT", raising=False)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("tensonde"), "propagate", True)
    caplog.set_level(logging.WARNING, "tensonde")
    return caplog


def test_a_failure_is_told_once_and_counted(lines: pytest.LogCaptureFixture) -> None:
    reported: list[dict[str, object]] = []
    guard = Guard(lambda kind, **fields: reported.append({"kind": kind, **fields}))
    for _ in range(12):
        guard.contain("a place", ValueError("broken"))
    assert guard.failures == {"a place": 12}
    assert len(lines.records) == 1
    assert "a place (ValueError: broken)" in lines.text
    assert [entry["where"] for entry in reported] == ["a place"]


def test_one_cause_in_two_places_is_one_line_and_two_entries(lines: pytest.LogCaptureFixture) -> None:
    guard = Guard()
    guard.contain("here", OSError(28, "No space left on device", "a"))
    guard.contain("there", OSError(28, "No space left on device", "b"))
    assert len(lines.records) == 1
    guard.contain("there", ValueError("else"))
    guard.contain("elsewhere", ValueError("else"))
    assert len(lines.records) == 2
    assert dict(guard.failures) == {"here": 1, "there": 2, "elsewhere": 1}


def test_a_report_that_fails_as_well_is_contained(lines: pytest.LogCaptureFixture) -> None:
    def report(*args: object, **fields: object) -> None:
        raise OSError("disk full")

    assert not Guard(report).contain("a place", ValueError("broken"))
    assert len(lines.records) == 1


def test_strict_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSONDE_STRICT", "1")
    with pytest.raises(ValueError, match="broken"):
        Guard().contain("a place", ValueError("broken"))


# -- options -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        Options(run="/tmp/r"),
        Options(
            run="/tmp/ü b", watches=(("**:grad", "norm > 1e3", "stop"), ("a", "nan", "report")), on_hit="pause",
            budget=None, steps=3, recommended=False, debug=True, quiet=True,
        ),
    ],
)  # fmt: skip
def test_options_travel_through_the_environment(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in options.to_environment().items():
        monkeypatch.setenv(name, value)
    assert Options.from_environment() == options


def test_no_options_means_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    assert Options.from_environment() is None


@pytest.mark.parametrize(
    "text", ["{", "[]", "3", json.dumps({"run": "x"}), json.dumps({"run": "x", "watches": [], "new": 1})]
)
def test_options_that_are_none_of_ours(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, text)
    with pytest.raises(UsageError, match=ENVIRONMENT):
        Options.from_environment()


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("5%", 0.05),
        ("0.05", 0.05),
        ("off", None),
        (" OFF ", None),
        ("0", 0.0),
        ("0%", 0.0),
        ("100%", 1.0),
        ("2.5 %", 0.025),
    ],
)
def test_budgets(text: str, share: float | None) -> None:
    assert parse_budget(text) == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize("text", ["", "%", "much", "-1%", "inf", "nan", "1001%", "5 percent"])
def test_budgets_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="budget"):
        parse_budget(text)


def test_a_long_failure_is_one_line_and_its_details_are_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TENSONDE_STRICT", raising=False)
    monkeypatch.setattr(logging.getLogger("tensonde"), "propagate", True)
    guard = Guard(None, tmp_path / "failures.log")
    page = "Could not run 'aten::as_strided'" + " on this backend" * 40 + "\n" + "CPU: registered at\n" * 40
    with caplog.at_level(logging.WARNING, "tensonde"):
        for _ in range(3):
            guard.contain("entering a module", NotImplementedError(page))
    # A record counts once, even where another test has left a second way to caplog's handler.
    records = {id(record): record for record in caplog.records if record.levelno >= logging.WARNING}
    (said,) = [record.getMessage() for record in records.values()]
    assert "entering a module" in said
    assert "\n" not in said
    assert len(said) < 320
    assert (tmp_path / "failures.log").read_text().count("CPU: registered at") == 40
    assert guard.failures["entering a module"] == 3
