"""What is typed: commands, abbreviations, addresses with slices, places in files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tensonde.debugger.address import parse_reference, parse_slice, split_outside
from tensonde.debugger.commands import TABLE
from tensonde.debugger.places import parse_place
from tensonde.debugger.table import pick, split_line
from tensonde.errors import UsageError
from tensonde.model.moment import Moment, Phase
from tensonde.model.stop import Stop
from tensonde.program.stopping import code_lines

KNOWN = ["lstm:out[0]", "lstm:out[1]", "attn:out", "head.weight:value", "model/softmax#0:out"]


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("c", "continue"), ("cont", "continue"), ("s", "step"), ("n", "next"), ("ni", "ni"),
        ("u", "until"),
        ("unt", "until"), ("unw", "unwatch"), ("b", "break"), ("tb", "tbreak"), ("p", "print"),
        ("w", "where"),
        ("wa", "watch"), ("fin", "finish"), ("q", "quit"), ("l", "list"), ("h", "help"), ("i", "info"),
        ("d", "delete"), ("det", "detach"), ("stats", "stats"), ("hi", "hist"), ("py", "pdb"),
        ("rec", "recheck"),
    ],
)  # fmt: skip
def test_an_abbreviation_finds_its_command(word: str, name: str) -> None:
    assert TABLE.find(word).name == name


def test_an_ambiguous_word_names_the_choices() -> None:
    with pytest.raises(UsageError, match="stats or status"):
        TABLE.find("stat")


def test_an_unknown_word_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean `continue`"):
        TABLE.find("contniue")
    with pytest.raises(UsageError, match="`eval` evaluates Python"):
        TABLE.find("torch.zeros(3)")


def test_topics_may_be_shortened() -> None:
    assert pick("br", ("breakpoints", "hits"), "info") == "breakpoints"
    with pytest.raises(UsageError, match="it may be breakpoints or hits"):
        pick("zzz", ("breakpoints", "hits"), "info")


def test_semicolons_separate_commands_outside_quotes() -> None:
    assert split_line("b attn; c ;; where") == ["b attn", "c", "where"]
    assert split_line("b x.py:3 if name == 'a;b'; c") == ["b x.py:3 if name == 'a;b'", "c"]


@pytest.mark.parametrize(
    ("text", "address", "index"),
    [
        ("attn:out", "attn:out", ()),
        ("attn:out[0, :, 3:5]", "attn:out", (0, slice(None), slice(3, 5))),
        ("lstm:out[1]", "lstm:out[1]", ()),
        ("lstm:out[1][0,:3]", "lstm:out[1]", (0, slice(None, 3))),
        ("attn:out[1]", "attn:out", (1,)),
        ("head.weight[-1, ::2]", "head.weight", (-1, slice(None, None, 2))),
        ("model/softmax#0:out[..., 0]", "model/softmax#0:out", (Ellipsis, 0)),
        ("blocks.*.attn:out[[0, 2]]", "blocks.*.attn:out", ([0, 2],)),
        ("**:grad", "**:grad", ()),
    ],
)
def test_the_address_is_as_long_as_it_can_be_and_the_rest_is_a_slice(text: str, address: str, index: object) -> None:
    reference = parse_reference(text, KNOWN)
    assert (reference.address, reference.index) == (address, index)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x + 1", "for `pdb`"),
        ("len(x)", "for `pdb`"),
        ("attn:out[0][1]", "2 slices"),
        ("attn:out[a]", "whole numbers"),
        ("attn:out[1.5]", "whole numbers"),
        ("attn:out[::-1]", "steps by -1"),
        ("attn:out[]", "as in numpy"),
        ("attn:out0]", "not opened"),
        ("", "a site is missing"),
    ],
)
def test_what_is_no_site_is_explained(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_reference(text, KNOWN)


def test_a_slice_never_evaluates_python() -> None:
    with pytest.raises(UsageError):
        parse_slice("__import__('os').getpid()")


def test_blanks_inside_a_slice_do_not_separate() -> None:
    assert split_outside("attn:out[0, :3] file.npy") == ["attn:out[0, :3]", "file.npy"]


# -- places ------------------------------------------------------------------------------------------

SOURCE = "# comment\nimport os\n\ndef f(x):\n    # nothing\n    return x\n"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return path


def stop_here() -> Stop:
    return Stop("pause", Moment(0, Phase.FORWARD), frame=sys._getframe())


def test_the_lines_of_inner_functions_can_be_stopped_at(source: Path) -> None:
    assert code_lines(str(source)) == {2, 4, 6}


def test_a_place_is_a_file_and_a_line(source: Path) -> None:
    assert parse_place("train.py:6", stop_here()) == (str(source), 6)
    assert parse_place("blocks.0.attn", stop_here()) is None
    assert parse_place("lstm:out", stop_here()) is None


def test_a_number_alone_is_a_line_of_the_current_file() -> None:
    line = sys._getframe().f_lineno
    assert parse_place(str(line), stop_here()) == (__file__, line)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.py:5", r"has no code; the nearest line that has is 6: `break train.py:6`"),
        ("train.py:1", r"nearest line that has is 2"),
        ("train.py:600", r"nearest line that has is 6"),
        ("trian.py:2", r"there is no file 'trian.py'"),
        ("train.py", r"needs a line number"),
        ("train.py:x", r"needs a line number"),
    ],
)
def test_a_wrong_place_says_what_would_be_right(source: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_place(text, stop_here())


def test_a_misspelt_file_suggests_one_that_is_loaded() -> None:
    with pytest.raises(UsageError, match=r"did you mean test_debugger_words\.py"):
        parse_place("test_debuger_words.py:1", stop_here())
