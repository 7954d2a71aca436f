"""The log: levels per sub-module, where lines go, rotation, JSON, and MindSpore's variables with their meaning."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from launch import Foundry, Ran, cli, python
from tensonde.errors import UsageError
from tensonde.log import Log

SAY = """
import logging, os, sys
from tensonde.log import set_up_log
set_up_log()
for name in ("tensonde.watch", "tensonde.store", "tensonde.session"):
    for level in (10, 20, 30, 40, 50):
        logging.getLogger(name).log(level, "%s %d", name.partition(".")[2], level // 10 - 1)
"""


def said(ran: Ran) -> list[str]:
    return [line.split(": ")[-1] for line in ran.err.splitlines()]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, {"watch": 2, "store": 2, "session": 2}),
        ({"TENSONDE_LOG": "0"}, {"watch": 0, "store": 0, "session": 0}),
        ({"TENSONDE_LOG": "critical"}, {"watch": 4, "store": 4, "session": 4}),
        ({"TENSONDE_LOG": "watch=0,store=3"}, {"watch": 0, "store": 3, "session": 2}),
        ({"TENSONDE_LOG": "4, watch=1"}, {"watch": 1, "store": 4, "session": 4}),
        ({"GLOG_v": "1"}, {"watch": 1, "store": 1, "session": 1}),
        ({"GLOG_v": "1", "TENSONDE_LOG": "3"}, {"watch": 3, "store": 3, "session": 3}),
        (
            {"GLOG_v": "1", "MS_SUBMODULE_LOG_v": "{STORE:2,SESSION:3,PARSER:0}"},
            {"watch": 1, "store": 2, "session": 3},
        ),
    ],
)
def test_levels(variables: dict[str, str], expected: dict[str, int], tmp_path: Path) -> None:
    ran = python("-c", SAY, cwd=tmp_path, env=variables)
    wanted = [f"{name} {level}" for name, least in expected.items() for level in range(least, 5)]
    assert said(ran) == wanted
    assert ran.out == "", "standard output is the training's own"


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_to_a_file(tmp_path: Path) -> None:
    ran = python("-c", SAY, cwd=tmp_path, env={"TENSONDE_LOG_FILE": "logs/mine.log"})
    assert ran.err == ""
    assert [line.rpartition("] ")[2] for line in lines(tmp_path / "logs" / "mine.log")][:3] == [
        "watch 2", "watch 3", "watch 4",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("to_screen", "folder", "rank", "name"),
    [("0", "here", "0", "tensonde.log"), ("0", "here", "3", "tensonde.rank3.log"), ("1", "here", "0", None)],
)
def test_glogs_choice_of_place(tmp_path: Path, to_screen: str, folder: str, rank: str, name: str | None) -> None:
    env = {"GLOG_logtostderr": to_screen, "GLOG_log_dir": str(tmp_path / folder), "RANK": rank}
    ran = python("-c", SAY, cwd=tmp_path, env=env)
    if name is None:
        assert "watch 2" in ran.err
        assert not (tmp_path / folder).exists()
    else:
        assert ran.err == ""
        assert (tmp_path / folder / name).exists()


def test_json_lines(tmp_path: Path) -> None:
    ran = python("-c", SAY, cwd=tmp_path, env={"TENSONDE_LOG_FORMAT": "json", "TENSONDE_LOG": "4,store=3", "RANK": "1"})
    entries: list[dict[str, Any]] = [json.loads(line) for line in ran.err.splitlines()]
    assert [(e["level"], e["module"], e["message"], e["rank"]) for e in entries] == [
        ("critical", "watch", "watch 4", 1),
        ("error", "store", "store 3", 1),
        ("critical", "store", "store 4", 1),
        ("critical", "session", "session 4", 1),
    ]


ROTATE = """
import logging, os
from tensonde.log import set_up_log
set_up_log()
log = logging.getLogger("tensonde.store")
child = os.fork()
for k in range(400):
    log.warning("%s %d %s", "child" if child == 0 else "parent", k, "x" * 50)
if child:
    os.waitpid(child, 0)
"""


def test_rotation_and_a_file_for_each_process(tmp_path: Path) -> None:
    """Two processes at once, and each file is whole and of one process: none writes into, or rotates, another's."""
    before = "log = logging.getLogger"
    script = ROTATE.replace(before, "logging.getLogger('tensonde.store').warning('parent first')\n" + before)
    ran = python("-c", script, cwd=tmp_path, env={"TENSONDE_LOG_FILE": "a.log", "TENSONDE_LOG_SIZE": "0.01"})
    assert ran.code == 0, ran.err
    files = sorted(tmp_path.glob("a*.log*"))
    for path in files:
        assert path.stat().st_size <= 10_000
        assert len({line.rpartition("] ")[2].split()[0] for line in lines(path)}) == 1, path
    parents = [path for path in files if "parent" in path.read_text()]
    assert {path.name for path in parents} == {"a.log", *(f"a.log.{k}" for k in range(1, 5))} | (
        {"a.log.5"} if (tmp_path / "a.log.5").exists() else set()
    )
    assert len(files) > len(parents), "the child has files of its own"


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"TENSONDE_LOG": "7"}, "'7' is no level; the levels are 0"),
        ({"TENSONDE_LOG": "wach=1"}, "TENSONDE_LOG names 'wach'; the sub-modules are adapters"),
        ({"TENSONDE_LOG_FORMAT": "xml"}, "may be text or json"),
        ({"TENSONDE_LOG_SIZE": "-1"}, "number of megabytes"),
        ({"GLOG_logtostderr": "0"}, "GLOG_log_dir is not set"),
    ],
)
def test_wrong_use(variables: dict[str, str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=sentence):
        Log.from_environment(variables)
    env: dict[str, str | None] = {**variables}
    ran = cli("show", cwd=tmp_path, env=env)
    assert ran.code == 2
    assert sentence in ran.err
    assert "Traceback" not in ran.err
    ran = python("-c", SAY, cwd=tmp_path, env=variables)  # inside a training: said, and the defaults are used
    assert ran.code == 0
    assert sentence in ran.err
    assert "watch 2" in ran.err


def test_a_training_logs_its_beginning_and_its_output_stays(foundry: Foundry, tmp_path: Path) -> None:
    script = """
    import torch
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    print("done")
    """
    ran = foundry.watched(script, tmp_path, env={"TENSONDE_LOG": "session=1,adapters=0"})
    assert ran.out == "done\n"
    assert "tensonde: info (session): recording to " in ran.err
    assert "tensonde: debug (adapters): installed into torch" in ran.err


def test_a_trailing_slash_means_a_folder(tmp_path: Path) -> None:
    settings = Log.from_environment({"TENSONDE_LOG_FILE": f"{tmp_path / 'logs'}{os.sep}"})
    assert settings.file == tmp_path / "logs" / "tensonde.log"
