"""Plain errors of a program: what is known of them, without running any of it again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tensonde.program.raised import about
from tensonde.program.values import FrameState

CASES = {
    "a key that is spelt otherwise": (
        "config = {'lr': 1, 'hidden': 2}\ndef build(cfg):\n    return cfg['hidden_size']\nbuild(config)\n",
        {"kind": "key", "key": "'hidden_size'", "holder": "cfg", "near": ["hidden"], "made": 1},
    ),
    "a variable of the environment": (
        "import os\nos.environ['NO_SUCH_VARIABLE_HERE']\n",
        {"kind": "key", "environment": True},
    ),
    "an option that is spelt otherwise": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--learning-rate', default=1)\n"
        "args = p.parse_args([])\nprint(args.learning_rat)\n",
        {"kind": "attribute", "name": "learning_rat", "of": "Namespace", "near": ["learning_rate"], "made": 4},
    ),
    "a function that returns nothing": (
        "def read(path):\n    rows = [1, 2]\n    sorted(rows)\ndata = read('x')\nprint(data.mean())\n",
        {"kind": "none", "name": "data", "function": "read", "end": 3},
    ),
    "None as a start": (
        "best = None\nfor loss in (1.0, 2.0):\n    if best < loss:\n        best = loss\n",
        {"kind": "none", "name": "best", "value": "None", "made": 1},
    ),
    "a loop over nothing": (
        "def mean(rows):\n    for row in rows:\n        total = row\n    return total\nmean([])\n",
        {"kind": "unbound", "name": "total", "loop": 2, "over": "rows", "length": 0},
    ),
    "a name that is spelt otherwise": (
        "model_dim = 4\nprint(model_dims)\n",
        {"kind": "unbound", "name": "model_dims", "near": ["model_dim"]},
    ),
    "an argument that is missing": (
        "def forward(x, mask, scale=1.0):\n    return x\nforward(1)\n",
        {"kind": "call", "called": "forward", "takes": "(x, mask, scale=1.0)", "defined": 1},
    ),
    "an argument that is unknown": (
        "class Net:\n    def __init__(self, width, depth=2):\n        pass\nNet(3, dept=1)\n",
        {"kind": "call", "called": "Net", "near": ["depth"], "takes": "(width, depth=2)"},
    ),
    "a batch that is not turned around": (
        "batch = [([1.0], 0), ([2.0], 1), ([3.0], 0)]\nx, y = batch\n",
        {"kind": "unpack", "wanted": 2, "many": True, "value": "batch", "length": 3, "parts": 2, "loop": False},
    ),
    "an element past the end": (
        "rows = []\nprint(rows[0])\n",
        {"kind": "position", "holder": "rows", "length": 0, "index": 0, "made": 1},
    ),
    "an assertion": (
        "limit = 3\nsize = 7\nassert size <= limit, 'too large'\n",
        {"kind": "own", "condition": "size <= limit", "asserted": True, "values": {"size": "7", "limit": "3"}},
    ),
    "a check of the program's": (
        "name = 'adamx'\nif name not in ('adam', 'sgd'):\n    raise ValueError(name)\n",
        {"kind": "own", "condition": "name not in ('adam', 'sgd')", "asserted": False, "values": {"name": "'adamx'"}},
    ),
}


def raised(text: str, folder: Path) -> tuple[BaseException, list[FrameState]]:
    path = folder / "program.py"
    path.write_text(text)
    try:
        exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
    except Exception as problem:
        trace = problem.__traceback__
        places = []
        while trace is not None:
            places.append(FrameState(trace.tb_frame, trace.tb_lineno, trace.tb_lasti))
            trace = trace.tb_next
        return problem, [place for place in places if place.path == str(path)]
    raise AssertionError("it did not fail")


@pytest.mark.parametrize("name", CASES)
def test_what_an_error_is_about(name: str, tmp_path: Path) -> None:
    text, wanted = CASES[name]
    fact = about(*raised(text, tmp_path)) or {}
    lines: dict[str, Any] = {
        key: fact[key]["line"] for key in ("made", "end", "defined", "loop") if isinstance(fact.get(key), dict)
    }
    assert {key: {**fact, **lines}.get(key) for key in wanted} == wanted


def test_a_file_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "training.json").write_text("[]")
    fact = about(*raised("open('data/trainin.json')\n", tmp_path)) or {}
    assert fact["missing"] == "trainin.json"
    assert fact["near"] == ["training.json"]
    assert Path(fact["folder"]) == tmp_path / "data"


def test_nothing_of_the_users_runs(tmp_path: Path) -> None:
    text = (
        "class Odd:\n    def __getattr__(self, name):\n        import sys\n        sys.odd_was_asked.append(name)\n        raise AttributeError(name)\n"
        "    def __len__(self):\n        import sys\n        sys.odd_was_asked.append('len')\n        return 1\n"
        "odd = Odd()\nodd.first\n"
    )
    sys.odd_was_asked = []  # type: ignore[attr-defined]
    try:
        problem, places = raised(text, tmp_path)
        before = list(sys.odd_was_asked)  # type: ignore[attr-defined]
        about(problem, places)
        assert sys.odd_was_asked == before  # type: ignore[attr-defined]
    finally:
        del sys.odd_was_asked  # type: ignore[attr-defined]
