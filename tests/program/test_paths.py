"""Whose code a file is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensonde.program.frames import is_library
from tensonde.program.lines import display_path


@pytest.mark.parametrize(
    "path",
    [
        json.__file__,
        pytest.__file__,
        "/home/somebody/.local/lib/python3.11/site-packages/trainer/loop.py",
        "/usr/lib/python3/dist-packages/trainer/loop.py",
    ],
)
def test_installed_code_is_a_library(path: str) -> None:
    assert is_library(path)


@pytest.mark.parametrize("path", [__file__, "train.py", "/home/somebody/packages/train.py"])
def test_the_user_s_program_is_not(path: str) -> None:
    assert not is_library(path)


def test_compiled_cython_is_a_librarys_unless_its_source_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frames name files such as `pandas/_libs/tslibs/parsing.pyx`, relative to where it was built."""
    monkeypatch.chdir(tmp_path)
    assert is_library("pandas/_libs/tslibs/parsing.pyx")
    (tmp_path / "mine.pyx").write_text("")
    assert not is_library("mine.pyx")


def test_paths_are_shown_where_the_working_directory_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert display_path("/some/train.py") == "/some/train.py"
