"""All ranks of a training steered as one, without a deadlock: real processes, joined by gloo."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
from hub_drive import hub, training
from together import Pair

from launch import Foundry
from tensonde.protocol.client import HubError
from two_ranks import RANKS

MOVES = ("step", "next", "nextop", "finish", "until", "continue and pause")


@pytest.mark.timeout(240)
def test_fifty_commands_in_any_order(foundry: Foundry, tmp_path: Path) -> None:
    chance = random.Random(16)
    with (
        hub(tmp_path) as there,
        there.client.live() as live,
        training(foundry, tmp_path, there.address.link, code=RANKS) as it,
    ):
        pair = Pair(there, live)
        pair.act("pause")
        stops = pair.both_stopped()
        assert len({stop["step"] for stop in stops.values()}) == 1, stops
        for _ in range(50):
            before = {name: stop["number"] for name, stop in stops.items()}
            move = chance.choice(MOVES)
            if move == "continue and pause":
                pair.act("continue")
                pair.wait(lambda found: all(state["stop"] is None for state in found.values()))
                pair.act("pause")
            elif move == "until":
                pair.act("until", sites=chance.choice(("2:grad", "0:out", "1/relu#0")))
            else:
                pair.act(move)
            found = pair.wait(
                lambda found, before=before: all(
                    s["stop"] and s["stop"]["number"] > before[name] for name, s in found.items()
                )
            )
            stops = {name: state["stop"] for name, state in found.items()}
            assert len({(stop["step"], stop["site"]) for stop in stops.values()}) == 1, (move, stops)
        assert {state["together"]["timeout"] for state in found.values()} == {600.0}
        assert {state["together"]["world"] for state in found.values()} == {2}
        it.finish()
        pair.act("continue")
        ran = it.end()
    assert ran.code == 0, ran.err
    weights = [line.split()[2:] for line in ran.out.splitlines()]
    assert len(weights) == 2, ran.out
    assert weights[0] == weights[1], ran.out


@pytest.mark.timeout(120)
def test_a_hit_on_one_rank_holds_the_other(foundry: Foundry, tmp_path: Path) -> None:
    """Rank 1 stops where its loss is bad; rank 0 waits for its gradients, for the time that gloo has left, and goes on with it."""
    with (
        hub(tmp_path) as there,
        there.client.live() as live,
        training(
            foundry, tmp_path, there.address.link, code=RANKS, watch=[("loss:value", "absmax > 1e6")], on_hit="pause"
        ) as it,
    ):
        pair = Pair(there, live)
        (it.folder / "poison").touch()
        found = pair.wait(
            lambda found: found["rank1"]["stop"] and (found["rank0"]["stop"] or found["rank0"]["together"]["waiting"])
        )
        assert found["rank1"]["stop"]["reason"] == "hit"
        waiting = found["rank0"]["together"]["waiting"]
        assert waiting is not None, found["rank0"]
        assert waiting["what"].startswith("the gradients of DistributedDataParallel")
        assert 500 < waiting["left"] <= 600
        place = there.client.place(pair.run, "rank1")
        with pytest.raises(HubError, match="rank1 cannot do `nextop` alone: it would wait for rank0"):
            place.control("nextop", alone=True)
        with pytest.raises(HubError, match="rank0 cannot do `pause` alone: rank1 would wait for it"):
            there.client.place(pair.run, "rank0").control("pause", alone=True)
        (it.folder / "poison").unlink()
        step = found["rank1"]["stop"]["step"]
        answer = place.command("step")  # as typed in a terminal: for both
        assert answer["resumed"]
        stops = pair.both_stopped()
        assert {stop["step"] for stop in stops.values()} == {step + 1}
        assert place.command("next")["resumed"]
        stops = {
            name: s["stop"]
            for name, s in pair.wait(lambda found: all(s["stop"] and s["stop"]["site"] for s in found.values())).items()
        }
        assert len({(stop["step"], stop["site"]) for stop in stops.values()}) == 1
        it.finish()
        pair.act("continue")
        assert it.end().code == 0


@pytest.mark.timeout(120)
def test_a_stop_ends_before_the_back_end_gives_up(foundry: Foundry, tmp_path: Path) -> None:
    """Gloo would end rank 0 after 8 seconds of waiting for rank 1."""
    env = {"GROUP_TIMEOUT": "8"}
    watch = [("loss:value", "absmax > 1e6")]
    with (
        hub(tmp_path) as there,
        there.client.live() as live,
        training(foundry, tmp_path, there.address.link, code=RANKS, watch=watch, on_hit="pause", env=env) as it,
    ):
        pair = Pair(there, live)
        (it.folder / "poison").touch()
        pair.wait(lambda found: found["rank1"]["stop"] and found["rank0"]["together"]["waiting"])
        (it.folder / "poison").unlink()
        pair.wait(lambda found: all(state["stop"] is None for state in found.values()))
        it.finish()
        ran = it.end()
    assert ran.code == 0, ran.err
    assert ran.err.count("the training goes on: rank0 waits in the gradients of DistributedDataParallel") == 1, ran.err


@pytest.mark.timeout(120)
def test_a_hub_lost_in_a_group_pause(foundry: Foundry, tmp_path: Path) -> None:
    """Both ranks go on by themselves, and it is said once."""
    env = {"TENSONDE_HUB_PATIENCE": "1"}
    with (
        hub(tmp_path) as there,
        there.client.live() as live,
        training(foundry, tmp_path, there.address.link, code=RANKS, env=env) as it,
    ):
        pair = Pair(there, live)
        pair.act("pause")
        pair.both_stopped()
        it.finish()
        there.kill()
        ran = it.end()
        there.process.returncode = 0
    assert ran.code == 0, ran.err
    assert ran.err.count("the hub has been gone") == 1, ran.err
    assert len({line.split()[2] for line in ran.out.splitlines()}) == 1, ran.out


@pytest.mark.timeout(120)
def test_a_rank_killed_in_a_group_pause(foundry: Foundry, tmp_path: Path) -> None:
    """The launcher ends the other rank and says what happened, as it does without Tensonde."""
    with (
        hub(tmp_path) as there,
        there.client.live() as live,
        training(foundry, tmp_path, there.address.link, code=RANKS) as it,
    ):
        pair = Pair(there, live)
        pair.act("pause")
        pair.both_stopped()
        os.kill(pair.states()["rank1"]["pid"], signal.SIGKILL)
        ran = it.end()
        found = pair.wait(lambda found: found["rank1"]["state"] == "killed")
        with pytest.raises(HubError, match="no rank of this run is connected"):
            pair.act("continue")
    assert ran.code == 1
    assert "process 1 terminated with signal SIGKILL" in ran.err
    assert found["rank0"]["state"] in ("killed", "terminated", "failed")
