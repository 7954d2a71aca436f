"""A compiled training that is stopped inside compiled code keeps its bits, forward and backward, however it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry, Ran

SCRIPT = Path(__file__).parent / "scripts" / "compiled_cnn.py"
STOPS = {
    "forward": "step\nuntil **/conv2d*\nwhere\ncontinue\n",
    "backward": "step\nuntil **:grad_in\nprint **:grad_in\ncontinue\n",
    "at once": "until **/relu*\nnext op\nnext op\nfinish\nstep\ncontinue\n",
    "every node": "break **/*\n" + "continue\n" * 60 + "delete 1\ncontinue\n",
    "both passes": "step 2\nbreak **/batch_norm*\ncontinue\nnext\nnext op\nuntil **/conv2d*:grad_in\nnext op\nstep\ndelete 1\ncontinue\n",
    "the end of the commands": "step\nuntil **/conv2d*\n",
}


def run(foundry: Foundry, place: Path, *argv: str, stdin: str | None = None) -> Ran:
    """Bare without `stdin`."""
    place.mkdir()
    env = {"TEST_SECONDS": "280", "TORCHINDUCTOR_CACHE_DIR": str(place.parent / "cache")}
    if stdin is None:
        ran = foundry.bare(SCRIPT, place, argv=argv, env=env)
    else:
        ran = foundry.watched(
            SCRIPT, place, argv=argv, env=env, debug=True, on_hit="pause", recommended=False, stdin=stdin
        )
        assert "stopping inside compiled code" in ran.err
        assert ran.session["failures"] == {}
    assert ran.code == 0, ran.err
    return ran


@pytest.fixture(scope="module")
def bare(foundry: Foundry, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(foundry, tmp_path_factory.mktemp("compiled") / "bare")


@pytest.mark.parametrize("stops", STOPS)
def test_the_bits_are_those_of_a_run_without_stops(stops: str, bare: Ran, foundry: Foundry, tmp_path: Path) -> None:
    stopped = run(foundry, tmp_path / "stopped", stdin=STOPS[stops])
    assert stopped.result == bare.result


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_inductor_too(foundry: Foundry, tmp_path: Path) -> None:
    bare = run(foundry, tmp_path / "bare", "inductor")
    stopped = run(foundry, tmp_path / "stopped", "inductor", stdin=STOPS["both passes"])
    assert stopped.result == bare.result
    assert "random numbers" in stopped.err


def test_a_value_that_is_set_at_a_stop_counts(bare: Ran, foundry: Foundry, tmp_path: Path) -> None:
    """In this call and no other, and the backward pass gets what it expects."""
    commands = "step 2\nuntil **/conv2d*\nset body.0/conv2d#0:out[0] = 3\ncontinue\n"
    stopped = run(foundry, tmp_path / "stopped", stdin=commands)
    losses = [ran.result["losses"] for ran in (bare, stopped)]
    assert losses[0][:2] == losses[1][:2]
    assert losses[0][2] != losses[1][2]
    assert stopped.result["rng"] == bare.result["rng"]


def test_a_call_that_prints_runs_once(foundry: Foundry, tmp_path: Path) -> None:
    bare = run(foundry, tmp_path / "bare", "printing")
    stopped = run(foundry, tmp_path / "stopped", "printing", stdin=STOPS["forward"])
    assert stopped.out.count("norm") == bare.out.count("norm") == 6
    values = [[float.fromhex(loss) for loss in ran.result["losses"]] for ran in (bare, stopped)]
    assert values[1] == pytest.approx(values[0], rel=1e-4)
