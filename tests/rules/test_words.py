"""Advice is in the words of the framework that trained."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tensonde import diagnose
from tensonde.diagnose.words import WORDS, in_words_of

FOLDER = Path(diagnose.__file__).parent


def texts() -> list[str]:
    """What rules may say; `X` where a value is put in."""
    found = []
    for path in FOLDER.rglob("*.py"):
        if path.name == "words.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(str(v.value) if isinstance(v, ast.Constant) else "X" for v in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def test_every_phrase_is_one_that_some_rule_says() -> None:
    """A rule whose wording changes takes its translation along."""
    said = "\n".join(texts())
    assert [pattern.pattern for pattern, _ in WORDS["mindspore"] if not pattern.search(said)] == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Call optimizer.step() after backward().", "Call optimizer(grads) with the gradients of every step."),
        (
            "Call model.eval() before the evaluation and model.train() after it.",
            "Call net.set_train(False) before the evaluation and net.set_train() after it.",
        ),
        ("Convert it where it is made: .to(torch.float32)", "Convert it where it is made: .astype(mindspore.float32)"),
        ("Use nn.ModuleList or nn.ModuleDict.", "Use nn.CellList or nn.CellDict."),
        ("Use a smaller learning rate.", "Use a smaller learning rate."),
    ],
)
def test_advice_for_mindspore(text: str, told: str) -> None:
    assert in_words_of("mindspore", text) == told
    assert in_words_of("torch", text) == text
    assert in_words_of("", text) == text
