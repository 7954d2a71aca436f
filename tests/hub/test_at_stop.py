"""What a stopped training says about itself: the tensors as they are now, and before step 0 all that there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_drive import TRAINING, HubProcess, Timeline, hub, training
from pydantic import TypeAdapter

from launch import Foundry, cli
from tensonde.server import models


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with hub(tmp_path_factory.mktemp("hub")) as made:
        yield made


def test_before_step_0_there_are_modules_and_initial_weights(
    there: HubProcess, foundry: Foundry, tmp_path: Path
) -> None:
    with (
        there.client.live() as live,
        training(foundry, tmp_path, there.address.link, debug=True, on_hit="pause") as run,
    ):
        timeline = Timeline(live)
        place = timeline.follow(there.client, run.id)
        stop = timeline.stopped()["stop"]
        assert stop["reason"] == "entry"
        assert stop["stack"][0]["function"] == "<module>"
        assert stop["stack"][0]["code"].startswith("loss = criterion(model(x)")
        graph = place.get("graph")
        nodes = dict(zip(graph["nodes"]["name"], graph["nodes"]["kind"], strict=True))
        assert {"0": "module", "2": "module", "0.weight": "parameter", "2.bias": "parameter"}.items() <= nodes.items()
        assert {"Linear", "ReLU"} <= set(graph["nodes"]["type"])
        weight = place.get("node", name="0.weight")
        TypeAdapter(models.Node).validate_python(weight)
        (port,) = weight["outputs"]
        assert (port["address"], port["shape"], port["live"]) == ("0.weight:value", [32, 16], True)
        assert port["digest"]["count"] == 512
        module = place.get("node", name="0")
        assert module["type"] == "Linear"
        assert [one["address"] for one in module["parameters"]] == ["0.bias:value", "0.weight:value"]
        assert place.get("tensor", address="0.weight:value", rows="0:1")["shape"] == [32, 16]
        # There is no step before it, and the page says that; it does not say that there is no such tensor.
        against = place.get("tensor", address="0.weight:value", against="previous")
        assert against["against"] is None
        assert "no earlier value of 0.weight:value is at hand" in against["note"]


def test_numbers_are_of_this_stop_and_say_their_step(there: HubProcess, foundry: Foundry, tmp_path: Path) -> None:
    with training(foundry, tmp_path, there.address.link) as run, there.client.live() as live:
        timeline = Timeline(live)
        place = timeline.follow(there.client, run.id)
        place.control("pause")
        step = timeline.type("stop")["stop"]["step"]
        place.post("assign", address="0.weight:value", index="0,0", value="Infinity")
        # Selected itself, as a parameter of its module, and as what an op takes: everywhere what it holds now.
        for name, ports in (("0.weight", "outputs"), ("0", "parameters")):
            found = next(one for one in place.get("node", name=name)[ports] if one["address"] == "0.weight:value")
            assert found["digest"]["pos_inf"] == 1, name
            assert found["live"]
            assert found["step"] == step
        op = place.get("node", name="0/linear#0")
        (weight,) = [one for one in op["parameters"] if one["address"] == "0.weight:value"]
        assert weight["digest"]["pos_inf"] == 1
        assert set(op["around"]) >= {"1/relu#0"}
        assert op["around"]["1/relu#0"]["step"] is not None
        # What is not at hand keeps its numbers, and their step.
        assert all(one["step"] == 0 for one in op["inputs"] if not one.get("live"))
        status = place.get("status")
        assert len(status["seen"]) == len(status["sites"])
        assert max(status["seen"]) <= status["step"]


def test_who_leaves_first_does_not_resume(there: HubProcess, foundry: Foundry, tmp_path: Path) -> None:
    with training(foundry, tmp_path, there.address.link) as run, there.client.live() as live:
        timeline = Timeline(live)
        place = timeline.follow(there.client, run.id)
        place.control("pause")
        timeline.type("stop")
        left = cli("attach", "--run", "run", there.address.link, cwd=tmp_path, stdin="where\n")
        assert "stays stopped" in left.err
        left = cli("attach", "--run", "run", there.address.link, cwd=tmp_path, stdin="detach\n")
        assert "stays stopped" in left.err
        assert place.state()["state"] == "stopped"
        live.send(f'{{"unsubscribe": {{"run": "{place.run}", "rank": "{place.rank}"}}}}')
        left = cli("attach", "--run", "run", there.address.link, cwd=tmp_path, stdin="where\n")
        assert "goes on" in left.err
        assert place.state()["state"] == "running"
        place.control("terminate")
        run.end()
        assert place.state()["state"] == "terminated"
        assert place.state()["ended"]


def test_dumped_tensors_are_shown_and_compared(foundry: Foundry, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    words = ("run", "-q", "--dump", "0", "--dump", "0.weight", "--dump-steps", "0,2-3,6", "--record", "out")
    done = cli(*words, "train.py", "8", cwd=tmp_path)
    assert done.code == 0, done.err
    with hub(tmp_path) as made:
        (run,) = [one for one in made.client.runs() if one["name"] == "out"] or made.client.runs()
        place = made.client.place(run["id"], "rank0")
        kept = {one["address"]: one["steps"] for one in place.get("tensors")}
        assert kept["0:out"] == kept["0.weight:value"] == [0, 2, 3, 6]
        assert {one["address"] for one in place.get("tensors", name="0.weight")} == {"0.weight:grad", "0.weight:value"}
        tile = place.get("tensor", address="0:out", step=3, against="previous", rows="0:2", cols="0:3")
        assert tile["step"] == 3
        assert tile["steps"] == [0, 2, 3, 6]
        assert tile["against"]["label"] == "step 2, the step before"
        assert not tile["against"]["equal"]
        tile = place.get("tensor", address="0:out", step=6, against="previous")
        assert tile["against"]["label"] == "step 3, the last one kept before step 6"
        assert run["command"] == ["train.py", "8"]
        assert run["ranks"][0]["loss"]
        assert run["ranks"][0]["seconds"] > 0
        with pytest.raises(Exception, match="was not kept at step 5; it was at 0, 2, 3, 6"):
            place.get("tensor", address="0:out", step=5)
