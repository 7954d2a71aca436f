"""Encodings that a program makes anew for each of its data sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensonde.program.encodings import made_for_each

CLASS = """
class Texts(Dataset):
    def __init__(self, texts):
        words = sorted({word for text in texts for word in text.split()})  # HERE
        self.numbers = {word: k for k, word in enumerate(words)}


train, test = Texts(ours), Texts(theirs)
"""
FUNCTION = """
def encoded(rows):
    kinds = {kind: k for k, kind in enumerate(set(rows))}  # HERE
    return [kinds[kind] for kind in rows]


a, b = encoded(train), encoded(test)
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (CLASS, True),
        (FUNCTION, True),
        ("scaler = StandardScaler()\na = scaler.fit_transform(train)\nb = scaler.fit_transform(test)  # HERE\n", True),
        (CLASS.replace("Texts(ours), Texts(theirs)", "Texts(ours), 0"), False),
        (FUNCTION.replace("return [kinds[kind] for kind in rows]", "return kinds"), False),
        ("a = scaler.fit_transform(train)\nb = scaler.transform(test)\n", False),
    ],
)
def test_what_is_numbered_anew_is_found(tmp_path: Path, text: str, told: bool) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    here = next((k for k, line in enumerate(text.splitlines(), 1) if "# HERE" in line), None)
    assert made_for_each(str(path)) == (here if told else None)
