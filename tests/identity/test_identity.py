"""Training under Tensonde is bit-identical to training without it: losses, weights, gradients, optimizers, random numbers.

Each script runs bare and in every mode; the modes differ in what is digested when, and all must change nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry, Ran, cli
from tensonde.store.sources import open_source

SCRIPTS = sorted(path for path in (Path(__file__).parent / "scripts").glob("*.py") if path.stem != "evidence")

LAUNCHED = ("cnn", "gan", "loader", "transformer")
"""These run through the command line as well; the others would only pay for the import of torch again."""


def assert_identical(bare: Ran, watched: Ran, mode: str) -> None:
    assert watched.code == bare.code == 0, f"{mode}: {watched.err}"
    assert watched.out == bare.out, mode
    for part, value in bare.result.items():
        assert watched.result[part] == value, f"{mode}: {part}"
    assert watched.session["failures"] == {}, mode
    assert watched.session["steps"] >= 6, mode


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_training_under_tensonde_is_bit_identical(script: Path, foundry: Foundry, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("bare", "everything", "default", "sentinel", "stop", "cli")}
    for place in places.values():
        place.mkdir()
    bare = foundry.bare(script, places["bare"])
    assert len(bare.result["losses"]) >= 6

    everything = foundry.watched(
        script, places["everything"], watch=[("**", "nan"), ("**:in", "nan"), ("**:update", "norm > 1e30")]
    )
    assert_identical(bare, everything, "everything at every step")
    assert {row["step"] for row in everything.rows} >= set(range(everything.session["steps"]))

    assert_identical(bare, foundry.watched(script, places["default"], budget=0.05), "default budget")
    assert_identical(bare, foundry.watched(script, places["sentinel"], budget=0.0), "sentinel only")
    stop = foundry.watched(script, places["stop"], watch=[("**", "norm > 1e30")], on_hit="stop", recommended=False)
    assert_identical(bare, stop, "watchpoints that act at once")

    if script.stem not in LAUNCHED:
        return
    record = places["cli"] / "recording"
    real = cli("run", "--budget", "off", "--record", record, script, cwd=places["cli"], folder=record)
    assert_identical(bare, real, "tensonde run")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_training_under_a_dump_is_bit_identical(script: Path, foundry: Foundry, tmp_path: Path) -> None:
    """Every tensor of every role, of ops too, written behind; and only overflows, written at once."""
    places = {name: tmp_path / name for name in ("bare", "behind", "overflow")}
    for place in places.values():
        place.mkdir()
    bare = foundry.bare(script, places["bare"])
    everything = {"dump_mode": 1, "kernels": ["**:*", "**/*:*"]}
    behind = {"common_dump_settings": everything, "async_dump_settings": {"enable": True}}
    ran = foundry.watched(script, places["behind"], dump=behind, budget=0.05)
    assert_identical(bare, ran, "asynchronous dump")
    source = open_source(places["behind"] / "dump")
    assert source.problems == []
    assert {"module", "op", "parameter", "loss"} <= {entry.kind for entry in source.entries}
    assert {entry.step for entry in source.entries} >= set(range(ran.session["steps"]))
    overflow = {
        "common_dump_settings": {"dump_mode": 0, "op_debug_mode": 3},
        "e2e_dump_settings": {"enable": True},
    }
    assert_identical(bare, foundry.watched(script, places["overflow"], dump=overflow, budget=0.0), "overflows only")


COMMANDS = """
step 2
break *:grad
continue
delete 1
watch ** norm > 1e30
next
where
next op
finish
tree
until loss
stats loss
step
diff loss
break *:out if norm > 1e30
break **/*
continue
continue
delete 2
step
print loss
"""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_training_in_the_debugger_is_bit_identical(script: Path, foundry: Foundry, tmp_path: Path) -> None:
    """Attached and continued; and stepped, stopped in both passes and looked at in between."""
    places = {name: tmp_path / name for name in ("bare", "continued", "stepped", "cli")}
    for place in places.values():
        place.mkdir()
    bare = foundry.bare(script, places["bare"])
    modes = {"continued": "continue\n", "stepped": COMMANDS + "continue\n" * 40}
    for mode, commands in modes.items():
        ran = foundry.watched(script, places[mode], debug=True, on_hit="pause", recommended=False, stdin=commands)
        assert_identical(bare, ran, mode)
        assert ran.err.count("(tensonde)") >= commands.count("\n") // 40, ran.err
    if script.stem in LAUNCHED[:1]:
        record = places["cli"] / "recording"
        real = cli(
            "debug",
            "--no-recommended",
            "--record",
            record,
            script,
            cwd=places["cli"],
            stdin="continue\n",
            folder=record,
        )
        assert_identical(bare, real, "tensonde debug")
