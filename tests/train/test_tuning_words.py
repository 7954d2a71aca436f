"""The words of `tensonde tune`: spaces, metrics, settings; and what a script is started with."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from tensonde.errors import UsageError
from tensonde.model import reported
from tensonde.train.tuning.metric import Metric, worth_telling
from tensonde.train.tuning.settings import Settings
from tensonde.train.tuning.space import Parameter
from tensonde.train.tuning.trial import command_of


@pytest.mark.parametrize(
    "text",
    ["lr=log:1e-05:0.1", "d=float:0:0.5", "n=int:1:8", "w=int:32:256:32", "k=logint:1:1024", "b=choice:32,64"],
)
def test_spaces_are_understood_and_written_as_they_were(text: str) -> None:
    assert str(Parameter.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lr", "is not NAME=SPACE"),
        ("lr=0.1", "no space that is known"),
        ("lr=log:1e-3", "needs numbers"),
        ("lr=log:a:b", "needs numbers"),
        ("n=int:1.5:2", "needs whole numbers"),
        ("lr=log:0:1", "must begin above 0"),
        ("lr=float:1:0", "is empty"),
        ("lr=float:nan:1", "is empty"),
        ("b=choice:32,,64", "must be different words"),
        ("n=int:1:8:0", "steps of 0"),
    ],
)
def test_wrong_spaces(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Parameter.parse(text)


def test_a_space_is_optunas() -> None:
    pytest.importorskip("optuna")
    found = Parameter.parse("lr=log:1e-5:0.1").distribution()
    assert (found.low, found.high, found.log) == (1e-5, 0.1, True)
    assert Parameter.parse("b=choice:32,64").distribution().choices == ("32", "64")
    assert Parameter.parse("b=choice:32,1e-3,sgd").distribution(numbers=True).choices == (32, 0.001, "sgd")


def test_where_values_go() -> None:
    space = (
        Parameter.parse("lr=log:1e-5:1"),
        Parameter.parse("b=choice:32,64"),
        Parameter.parse("E=int:1:2", environment=True),
    )
    settings = Settings(("train.py", "--set", "opt.lr={lr}"), space, Metric())
    command, environment = command_of(settings, {"lr": 0.1 + 0.2, "b": "64", "E": 2})
    assert command == [sys.executable, "train.py", "--set", "opt.lr=0.30000000000000004", "--b", "64"]
    assert environment == {"E": "2"}


def write(folder: Path, values: list[float]) -> None:
    lines = "".join(f'{{"name": "loss", "value": {value}, "step": null}}\n' for value in values)
    (folder / "reports.jsonl").write_text(lines.replace("nan", "NaN").replace("inf", "Infinity"))


@pytest.mark.parametrize(
    ("reduce", "expected"), [("last", 6.0), ("min", 1.0), ("max", 6.0), ("mean:2", 5.0), ("mean:100", 3.25)]
)
def test_reductions(tmp_path: Path, reduce: str, expected: float) -> None:
    write(tmp_path, [1.0, 2.0, 4.0, 6.0])
    assert Metric(reduce=reduce).final(tmp_path) == expected


def test_nan_is_not_averaged_away(tmp_path: Path) -> None:
    write(tmp_path, [1.0, math.nan])
    assert math.isnan(Metric().final(tmp_path) or 0.0)
    assert Metric(reduce="min").final(tmp_path) == 1.0


def test_from_what_is_printed(tmp_path: Path) -> None:
    (tmp_path / "output.txt").write_text("epoch 1 acc: 0.5\nnoise\nepoch 2 acc: 0.75\nacc: x\n")
    metric = Metric("acc", "last", r"acc: (\S+)")
    assert metric.values(tmp_path) == [(0, 0.5), (1, 0.75)]
    assert metric.final(tmp_path) == 0.75


def test_a_line_on_its_way_is_left_for_later(tmp_path: Path) -> None:
    (tmp_path / "r").write_text('{"name": "a", "value": 1.0, "step": 2}\n{"name": "a", "val')
    assert reported.read(tmp_path / "r") == [reported.Reported("a", 1.0, 2)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"reduce": "median"}, "may be last"),
        ({"pattern": "("}, "no regular expression"),
        ({"pattern": "x"}, "has no group"),
    ],
)
def test_wrong_metrics(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Metric(**options)


def test_steps_that_are_told_are_few_and_the_same() -> None:
    told = [step for step in range(10_000) if worth_telling(step)]
    assert told[:101] == [*range(100), 100]
    assert len(told) == 100 + 90 + 90


def test_another_question_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    first = Settings(("a.py",), (Parameter.parse("lr=log:1e-5:1"),), Metric())
    first.keep(tmp_path)
    first.keep(tmp_path)
    with pytest.raises(UsageError, match="has other parameters than were given"):
        Settings(("a.py",), (Parameter.parse("lr=log:1e-4:1"),), Metric()).keep(tmp_path)
