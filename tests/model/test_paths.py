"""Whose code a file is."""

from __future__ import annotations

import json

import pytest

from tensonde.model.paths import is_library


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
