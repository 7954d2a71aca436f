"""What is shown: tables, colours, histograms, differences, the header of a stop."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tensonde.debugger.change import compare
from tensonde.debugger.header import show_stop
from tensonde.debugger.histogram import histogram, magnitudes
from tensonde.debugger.numbers import many
from tensonde.debugger.terminal import ScriptReader, Terminal
from tensonde.debugger.values import values_text
from tensonde.digest.layout import ROW
from tensonde.errors import UsageError
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Role, Site, SourceLine
from tensonde.model.stop import Stop
from tensonde.model.watchpoint import Hit
from tensonde.session.inspector import Value


def terminal(*, colour: bool = False) -> Terminal:
    sink = io.StringIO()
    return Terminal(sink, ScriptReader(io.StringIO(), sink), interactive=False, colour=colour)


def shown(terminal: Terminal) -> str:
    assert isinstance(terminal.sink, io.StringIO)
    return terminal.sink.getvalue()


def plain(lines: list[list[Any]]) -> list[str]:
    return ["".join(piece if isinstance(piece, str) else piece[0] for piece in line) for line in lines]


class OneTensor:
    """An inspector that knows the value at one site, and no rows."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.session: Any = SimpleNamespace(rows=np.zeros(4, ROW), block=[])

    def value(self, address: str, **_: Any) -> Value:
        if address != "attn:grad":
            raise UsageError(f"no value of {address}")
        return Value(address, self.array, "float32", self.array.shape)


def test_columns_of_numbers_stand_to_the_right() -> None:
    screen = terminal()
    screen.table([["a", "1"], ["bb", "22"]], titles=("name", "count"))
    assert shown(screen) == "  name  count\n  a         1\n  bb       22\n"


def test_styles_are_escape_codes_only_where_there_is_colour() -> None:
    coloured, bare = terminal(colour=True), terminal(colour=False)
    for screen in (coloured, bare):
        screen.line("x ", ("nan 3", "bad"))
    assert shown(coloured) == "x \033[1;31mnan 3\033[0m\n"
    assert shown(bare) == "x nan 3\n"


def test_a_sink_that_is_no_terminal_has_no_colour() -> None:
    assert not Terminal(io.StringIO(), ScriptReader(None, io.StringIO()), interactive=False).colour


def test_a_script_is_echoed_and_ends() -> None:
    sink = io.StringIO()
    reader = ScriptReader(io.StringIO("where\n"), sink)
    assert reader.read("(tensonde) ") == "where"
    assert sink.getvalue() == "(tensonde) where\n"
    with pytest.raises(EOFError):
        reader.read("(tensonde) ")


def test_a_stop_in_the_backward_pass_shows_the_forward_line_and_the_damage() -> None:
    screen = terminal(colour=True)
    site = Site(0, "attn", Role.GRAD, Kind.MODULE, type="Attention", shape=(2, 2), dtype="float32")
    hit = Hit(3, "attn:grad", Moment(3, Phase.BACKWARD), "norm > 1", {"norm >": 1.0}, {"norm": 5.0})
    array = np.array([[3.0, 4.0], [np.nan, np.inf]], np.float32)
    stop = Stop(
        "hit",
        Moment(3, Phase.BACKWARD),
        site,
        array,
        (),
        SourceLine("train.py", 29, "x = self.attn(x)"),
        hits=(hit,),
    )
    show_stop(screen, stop, OneTensor(array))  # type: ignore[arg-type]
    text = shown(screen)
    assert "\033[1;31mnan 1 of 4\033[0m" in text
    assert "\033[1;31minf 1 of 4\033[0m" in text
    for code in ("\033[0m", "\033[1m", "\033[2m", "\033[36m", "\033[33m", "\033[1;31m"):
        text = text.replace(code, "")
    assert text.splitlines() == [
        "● watchpoint hit",
        "  watchpoint 3: attn:grad norm > 1  norm is 5  (set: norm > 1)  step 3, backward",
        "step 3 · backward · attn:grad  float32[2,2]  Attention",
        "  min 3  mean 3.5  max 4  norm 5  nan 1 of 4  inf 1 of 4",
        "  forward line that made it: train.py:29  x = self.attn(x)",
    ]


def test_a_histogram_counts_every_finite_value_once_and_the_others_apart() -> None:
    values = np.array([0.0, 0.1, 0.9, 1.0, np.nan, np.inf, -np.inf])
    lines = plain(histogram(values, 10, bins=2))
    assert [line.split()[-1] for line in lines[:2]] == ["2", "2"]
    assert lines[2:] == ["nan: 1 of 7", "+inf: 1 of 7", "-inf: 1 of 7"]


def test_histograms_of_extreme_and_of_equal_values() -> None:
    huge = plain(histogram(np.array([-1.7e308, 1.7e308]), 10, bins=2))
    assert [line.split()[-1] for line in huge] == ["1", "1"]
    assert plain(histogram(np.array([2.0, 2.0]), 4)) == ["2 ████ 2"]
    assert plain(histogram(np.array([]), 4)) == []


def test_magnitudes_are_in_decades_with_zeros_apart() -> None:
    lines = plain(magnitudes(np.array([0.0, 0.002, -0.003, 5.0]), 8))
    assert lines[0].startswith("1e-03 … 1e-02 ████████ 2")
    assert lines[-2].startswith("1e+00 … 1e+01 ████ 1")
    assert lines[-1] == "zero: 1 of 4"


def test_many_decades_are_gathered_in_the_lowest_bin() -> None:
    lines = plain(magnitudes(np.array([1e-300, 1e-100, 1.0]), 8))
    assert len(lines) == 24
    assert lines[0].split() == ["below", "1e-22", "████████", "2"]


def test_a_change_in_numbers() -> None:
    change = compare(np.array([[1.0, 2.0], [3.0, np.nan]]), np.array([[1.0, 0.0], [3.0, 1.0]]))
    assert (change.count, change.changed, change.bad) == (4, 2, 1)
    assert change.max_abs == 2.0
    assert change.mean_abs == pytest.approx(2 / 3)
    assert change.relative == pytest.approx(2 / np.sqrt(10))
    assert change.cosine == pytest.approx(10 / np.sqrt(14 * 10))
    assert change.largest == [((0, 1), 2.0, 0.0)]


def test_no_change_and_nothing_to_compare() -> None:
    same = compare(np.ones(3), np.ones(3))
    assert (same.changed, same.relative, same.largest) == (0, 0.0, [])
    assert same.cosine == pytest.approx(1.0)
    assert compare(np.zeros(0), np.zeros(0)).count == 0
    assert compare(np.array(3.0), np.array(2.0)).largest == [((), 3.0, 2.0)]


def test_long_arrays_are_summarised() -> None:
    assert "..." in values_text(np.zeros(5000), 80)
    assert values_text(np.array([1.0, 2.0]), 80) == "  [1. 2.]"


def test_large_counts_are_short() -> None:
    assert [many(n) for n in (0, 931, 1234, 1_234_567, 7_000_000_000)] == ["0", "931", "1.23k", "1.23M", "7G"]
