from __future__ import annotations

import warnings

import pytest

from tensonde.errors import SyntaxProblem, UsageError
from tensonde.model.watchpoint import Watchpoint
from tensonde.watch.parse import load, loads, watchpoint


def test_first_space_splits():
    assert watchpoint("**:grad norm > 1e3", id=4, action="pause") == Watchpoint(4, "**:grad", "norm > 1e3", "pause")
    assert watchpoint("  loss   nan or inf ", id=1) == Watchpoint(1, "loss", "nan or inf")


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "empty"),
        ("**:grad", 7, "the condition is missing"),
        ("exploding", 0, "'** exploding'"),
        ("norm > 3", 0, "the sites are missing"),
        ("**:gradd norm > 3", 3, "did you mean grad?"),
        ("**:grad  nrm > 3", 9, "did you mean norm?"),
        ("**:grad norm > 1 and norm = 3", 26, "write =="),
    ],
)
def test_problems_point_into_the_whole_text(text, position, words):
    with pytest.raises(SyntaxProblem) as caught:
        watchpoint(text, id=1)
    assert words in str(caught.value)
    assert (caught.value.position, caught.value.text) == (position, text)


def test_toml(tmp_path):
    path = tmp_path / "tensonde.toml"
    path.write_text('budget = "5%"\n[[watch]]\nsites = "**:grad"\ncondition = "nan"\non_hit = "stop"\n')
    assert load(path, first_id=3) == [Watchpoint(3, "**:grad", "nan", "stop")]
    assert loads("") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("watch = 3", "tensonde.toml: watch is a list"),
        ("watch = [3]", "watch entry 1 is not a table"),
        ('[[watch]]\nsites = "**"', "watch entry 1 has no condition"),
        ('[[watch]]\nsites = "**"\ncondition = "nan"\naction = "stop"', "unknown key 'action'"),
        (
            '[[watch]]\nsites = "**"\ncondition = "nan"\non_hit = "halt"',
            "on_hit 'halt'; it is one of report, stop, pause",
        ),
        (
            '[[watch]]\nsites = "**"\ncondition = "nan"\n[[watch]]\nsites = "**"\ncondition = "nn"',
            "watch entry 2, condition",
        ),
        ('[[watch]]\nsites = "a:b"\ncondition = "nan"', "watch entry 1, sites: there is no role 'b'"),
        ("watch = ", "is not TOML"),
    ],
)
def test_toml_problems_name_file_and_entry(text, words):
    with pytest.raises(UsageError) as caught:
        loads(text)
    assert words in str(caught.value)
    assert "tensonde.toml" in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="nowhere"):
        load(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("norm > avg(norm, 1e999)", "whole number"),
        ("prev(norm, -1e999) > 1", "whole number"),
        ("norm >1or inf", "write 1 or"),
        ("norm > 1.5and nan", "write 1.5 and"),
        ("norm > 1e3if nan", "write 1e3 if"),
        (r"norm > '\d'", "backslash"),
    ],
)
def test_what_python_only_warns_about_is_refused(condition: str, said: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SyntaxProblem, match=said):
            watchpoint(f"** {condition}", id=1)
