"""A training and a hub, as processes: what one does to the other. Orders are asserted as far as they are promised, and nothing sleeps."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_drive import TRAINING, HubProcess, Timeline, Training, free_port, hub, training
from pydantic import TypeAdapter

from launch import Foundry, cli
from tensonde.protocol.address import Address
from tensonde.protocol.client import Client, HubError
from tensonde.server import models

COMPILED_CNN = Path(__file__).parent.parent / "identity" / "scripts" / "compiled_cnn.py"
TOKEN = "a-token-of-the-tests"


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with hub(tmp_path_factory.mktemp("hub")) as made:
        yield made


def test_pause_look_step_and_go_on(there: HubProcess, foundry: Foundry, tmp_path: Path) -> None:
    with training(foundry, tmp_path, there.address.link) as run, there.client.live() as live:
        timeline = Timeline(live)
        place = timeline.follow(there.client, run.id)
        assert place.run == run.id, "the recording and the live session are one run"
        state = timeline.state("running")["state"]
        TypeAdapter(models.RankState).validate_python(state)
        for ask in (
            lambda: place.get("tensor", address="0:out"),
            lambda: place.control("step"),
            lambda: place.command("where"),
        ):
            with pytest.raises(HubError, match="pause") as refused:
                ask()
            assert refused.value.status == 409

        assert place.control("pause")["accepted"]
        stop = timeline.type("stop")["stop"]
        TypeAdapter(models.Stop).validate_python(stop)
        assert stop["reason"] == "pause"
        step = stop["step"]
        tile = place.get("tensor", address="0:out", rows="0:2", cols="0:3", against="previous")
        TypeAdapter(models.Tile).validate_python(tile)
        assert tile["shape"] == [32, 32]
        assert tile["step"] == step - 1
        assert len(tile["values"]) == 2
        update = place.get("tensor", address="0.weight:update")
        assert any(value != 0 for row in update["values"] for value in row)
        assert any(entry["live"] for entry in place.get("tensors"))
        assert place.get("status")["step"] >= step - 1

        assert place.control("step", count=2)["state"] == "running"
        assert timeline.type("stop")["stop"]["step"] == step + 2
        place.control("nextop")
        assert "/" in timeline.type("stop")["stop"]["site"]
        place.control("until", sites="2:grad")
        assert timeline.type("stop")["stop"]["site"] == "2:grad"
        assert place.get("tensor", address="2:grad")["step"] == step + 2
        point = place.post("breakpoints", sites="1:out")
        place.control("continue")
        assert timeline.type("stop")["stop"]["breakpoint"] == point["id"]
        there.client.delete(f"{place.path}/breakpoints/{point['id']}")
        assert place.get("tensor", address="1:out")["step"] == step + 3, "what is shown does not go with the breakpoint"
        place.control("terminate")
        timeline.state("terminated")
        assert run.end().code == 0


def test_the_debuggers_commands_and_their_questions(there: HubProcess, foundry: Foundry, tmp_path: Path) -> None:
    with training(foundry, tmp_path, there.address.link) as run, there.client.live() as live:
        timeline = Timeline(live)
        place = timeline.follow(there.client, run.id)
        place.control("pause")
        timeline.type("stop")
        shown = place.command("")
        TypeAdapter(models.Output).validate_python(shown)
        assert "paused" in shown["output"][0][0]["text"]
        assert place.complete("pri")["options"] == ["print "]
        assert place.command("nonsense")["output"][0][0]["style"] == "bad"
        assert place.command("pdb")["prompt"] == "(Pdb) "
        assert place.command("2 + 40")["output"][0][0]["text"] == "42"
        with pytest.raises(HubError, match="waits for an answer"):
            place.control("continue")
        assert place.command("q")["prompt"] is None
        point = place.command("watch 0.weight:grad norm > 1e-9")
        assert "watchpoint" in point["output"][0][0]["text"]
        assert place.get("watchpoints")[-1]["sites"] == "0.weight:grad", "both ways lead to one list"
        assert "was changed" in place.post("assign", address="0.bias:value", index="0", value=0.5)["message"]
        assert place.get("tensor", address="0.bias:value", cols="0:1")["values"] == [[0.5]]
        question = place.command("quit")
        assert question["prompt"]
        assert place.command("y")["resumed"]
        timeline.state("terminated")
        assert run.end().code == 0


def test_compiled_graphs_are_compared_from_afar(there: HubProcess, foundry: Foundry, tmp_path: Path) -> None:
    code = TRAINING.replace("loss = criterion(model(x), y)", "loss = criterion(compiled(x), y)").replace(
        "criterion = ", 'compiled = torch.compile(model, backend="aot_eager")\ncriterion = '
    )
    with training(foundry, tmp_path, there.address.link, code=code) as run, there.client.live() as live:
        timeline = Timeline(live)
        place = timeline.follow(there.client, run.id)
        place.control("pause")
        timeline.type("stop")
        said = [place.command("verify")]
        if said[0]["resumed"]:  # nothing was kept before somebody looked
            timeline.type("stop")
            said.append(place.command(""))
        lines = ["".join(piece["text"] for piece in line) for answer in said for line in answer["output"]]
        compared = [line for line in lines if line.strip().startswith("graph ")]
        assert len(compared) == 2
        assert all(line.endswith("equal bit for bit") for line in compared)
        place.control("continue")


def test_what_is_kept_is_not_part_of_the_trace(there: HubProcess, foundry: Foundry, tmp_path: Path) -> None:
    """Stopped before step 0, everything is kept and looked at while the first step is traced."""
    with (
        there.client.live() as live,
        training(foundry, tmp_path, there.address.link, debug=True, on_hit="pause") as run,
    ):
        timeline = Timeline(live)
        place = timeline.follow(there.client, run.id)
        assert timeline.stopped()["stop"]["reason"] == "entry"
        place.control("next")
        assert timeline.type("stop")["stop"]["site"] == "0:out"
        place.get("tensor", address="0:out", rows="0:1")
        place.command("print 0.weight")
        place.control("step")
        timeline.type("stop")
        graph = place.get("graph", source="trace:0")
        assert [op for op in graph["nodes"]["op"] if op] == ["linear", "relu", "linear", "cross_entropy"]
        assert place.get("tensor", address="0.weight:value", against="previous")["against"] is not None
        scopes = graph["scopes"]
        assert scopes["name"][scopes["parent"][scopes["name"].index("0")]] == "model"
        place.control("terminate")
        assert run.end().code == 0


def test_watchpoints_of_a_running_training(there: HubProcess, foundry: Foundry, tmp_path: Path) -> None:
    with training(foundry, tmp_path, there.address.link, recommended=False) as run:
        with there.client.live() as live:
            timeline = Timeline(live)
            place = timeline.follow(there.client, run.id)
            with pytest.raises(HubError, match="ends too early") as refused:
                place.post("watchpoints", sites="**", condition="norm >")
            assert refused.value.status == 422
            deadline = time.monotonic() + 60
            while "2:out" not in {site["address"] for site in place.get("sites")}:  # the first step may not have come
                assert time.monotonic() < deadline
                time.sleep(0.05)
            quiet = place.post("watchpoints", sites="2:out", condition="absmax > 1e9", action="pause")
            TypeAdapter(models.Watchpoint).validate_python(quiet)
            assert quiet["matches"] == 1
            made = place.post("watchpoints", sites="2:grad", condition="norm > 0", action="pause")
            stop = timeline.type("stop")["stop"]
            assert stop["reason"] == "hit"
            assert stop["site"] == "2:grad"
            kinds = [message["type"] for message in timeline.seen]
            assert kinds.index("hit") < kinds.index("stop"), "the hit comes before the stop that it caused"
            shown = place.get("tensor", address="2:grad")
            assert shown["shape"] == [32, 4]
            assert shown["step"] == stop["step"]
            assert shown["digest"]["norm"] == pytest.approx(stop["hits"][0]["actual"]["norm"])
            listed = {point["id"]: point for point in place.get("watchpoints")}
            assert listed[made["id"]]["hits"] == 1
            changed = there.client.put(f"{place.path}/watchpoints/{made['id']}", {"enabled": False})
            assert not changed["enabled"]
            there.client.delete(f"{place.path}/watchpoints/{quiet['id']}")
            assert len(place.post("watchpoints/recommended")) > 5
            checked = place.post("watchpoints/recheck", sites="0.weight:value", condition="norm > 0")
            assert checked["checked"] > 0
            assert len(checked["hits"]) == 1
            place.control("continue")
            place.control("terminate")
            timeline.state("terminated")
        assert run.end().code == 0


def test_a_hit_pauses_only_for_somebody(there: HubProcess, foundry: Foundry, tmp_path: Path) -> None:
    """Nobody looks on: the training goes on by itself, and the recording says why."""
    with (
        hub(tmp_path) as empty,
        training(
            foundry, tmp_path, empty.address.link, steps=50, watch=[("0.weight:grad", "norm > 0")], on_hit="pause"
        ) as run,
    ):
        ran = run.end()
    assert ran.code == 0, ran.err
    assert ran.rank.hits
    assert "not-paused" in {event["kind"] for event in ran.rank.events}


def test_bit_identical_under_a_hub_with_pauses(there: HubProcess, foundry: Foundry, tmp_path: Path) -> None:
    bare = foundry.bare(TRAINING, tmp_path, argv=["40", "no"])
    with (
        there.client.live() as live,
        training(
            foundry, tmp_path, there.address.link, steps=40, watch=[("2:grad", "norm > 0")], on_hit="pause"
        ) as run,
    ):
        timeline = Timeline(live)
        place = timeline.follow(there.client, run.id)
        timeline.stopped()
        for action in ("next", "nextop", "finish", "step"):
            place.control(action)
            timeline.type("stop")
            place.get("tensor", address="0:out", against="previous")
            place.command("diff 0.weight")
        place.control("continue")
        ran = run.end()
    assert ran.code == 0, ran.err
    assert ran.out == bare.out


def test_two_trainings_at_once(there: HubProcess, foundry: Foundry, tmp_path: Path) -> None:
    second = Foundry()
    try:
        with (
            there.client.live() as live,
            training(foundry, tmp_path, there.address.link) as one,
            training(second, tmp_path, there.address.link) as two,
        ):
            timeline = Timeline(live)
            a, b = timeline.follow(there.client, one.id), timeline.follow(there.client, two.id)
            a.control("pause")
            stop = timeline.type("stop")
            assert stop["run"] == one.id
            before = b.state()["step"]
            timeline.until(lambda m: m["type"] == "state" and m["run"] == two.id and m["state"]["step"] > before + 5)
            assert a.state()["state"] == "stopped"
            assert a.state()["step"] == stop["stop"]["step"]
            for place in (a, b):
                place.control("terminate")
            assert one.end().code == two.end().code == 0
    finally:
        second.close()


def test_the_hub_is_killed_and_comes_back(foundry: Foundry, tmp_path: Path) -> None:
    """The training does not notice; the new hub has the session, all hits, and control."""
    port = free_port()
    first = HubProcess(tmp_path, port=port, token=TOKEN)
    with training(foundry, tmp_path, first.address.link, watch=[("**:grad", "norm > 1e-9")]) as run:
        with first.client.live() as live:
            timeline = Timeline(live)
            timeline.follow(first.client, run.id)
            timeline.until(lambda m: m["type"] == "state" and m["state"]["hits"] > 0)
        first.kill()
        second = HubProcess(tmp_path, port=port, token=TOKEN)
        try:
            with second.client.live() as live:
                timeline = Timeline(live)
                place = timeline.follow(second.client, run.id)
                timeline.state("running")
                made = place.post("watchpoints", sites="2:out", condition="absmax > 0")
                timeline.until(lambda m: m["type"] == "hit" and m["hit"]["watchpoint"] == made["id"])
                run.finish()
                timeline.state("finished")
                hits = place.get("hits", limit=10_000)
                assert [hit["ord"] for hit in hits["hits"]] == list(range(hits["total"])), "none lost, none twice"
                assert place.state()["hits"] == hits["total"]
        finally:
            second.close()
        ran = run.end()
    assert ran.code == 0, ran.err
    assert len(ran.rank.hits) == hits["total"]


def test_a_hub_that_cannot_read_the_recording(foundry: Foundry, tmp_path: Path) -> None:
    """As from another machine: what the agent streams is all there is, also after the hub was killed."""
    port = free_port()
    elsewhere = {"PATH_ELSEWHERE": "1"}
    code = "import tensonde.session.agent as a; a.machine = lambda: 'elsewhere'\n" + TRAINING
    first = HubProcess(tmp_path, port=port, token=TOKEN)
    with training(
        foundry, tmp_path, first.address.link, watch=[("**:grad", "norm > 1e-9")], env=elsewhere, code=code
    ) as run:
        with first.client.live() as live:
            timeline = Timeline(live)
            timeline.follow(first.client, run.id)
            timeline.until(lambda m: m["type"] == "state" and m["state"]["hits"] > 3)
        first.kill()
        with hub(tmp_path, port=port, token=TOKEN) as second, second.client.live() as live:
            timeline = Timeline(live)
            place = timeline.follow(second.client, run.id)
            timeline.type("digests")
            (entry,) = [entry for entry in second.client.runs() if entry["id"] == run.id]
            assert entry["path"] is None
            place.control("pause")
            timeline.type("stop")
            assert {site["address"] for site in place.get("sites")} >= {"0:out", "loss:value"}
            assert place.get("digests", site="loss:value")["step"]
            assert place.get("scalars", name="loss")["value"]
            assert len(place.get("status")["sites"]) > 10
            assert place.get("graph")["source"] == "module"
            hits = place.get("hits", limit=10_000)
            assert [hit["ord"] for hit in hits["hits"]] == list(range(hits["total"]))
            assert place.get("tensor", address="0:out")["shape"] == [32, 32]
            place.control("terminate")
            timeline.state("terminated")
        ran = run.end()
    assert len(ran.rank.hits) == hits["total"]


def test_a_stopped_training_waits_for_its_hub_only_so_long(foundry: Foundry, tmp_path: Path) -> None:
    first = HubProcess(tmp_path)
    patience = {"TENSONDE_HUB_PATIENCE": "0.5"}
    with first.client.live() as live:  # first, for a hit pauses only for somebody
        run = Training(
            foundry,
            tmp_path,
            first.address.link,
            steps=300,
            env=patience,
            watch=[("loss:value", "norm > 0")],
            on_hit="pause",
        )
        timeline = Timeline(live)
        timeline.follow(first.client, run.id)
        timeline.stopped()
        first.kill()
    ran = run.end()
    assert ran.code == 0, ran.err
    assert "the training goes on" in ran.err


def test_the_hub_is_lost_while_a_training_is_stopped_inside_compiled_code(foundry: Foundry, tmp_path: Path) -> None:
    """The training goes on after a while, to the same bits."""
    bare = foundry.bare(COMPILED_CNN, tmp_path)
    first = HubProcess(tmp_path)
    env = {"TENSONDE_HUB_PATIENCE": "0.5"}
    with first.client.live() as live:
        run = Training(
            foundry, tmp_path, first.address.link, code=COMPILED_CNN, argv=(), env=env,
            watch=[("loss:value", "norm > 0")], on_hit="pause",
        )  # fmt: skip
        timeline = Timeline(live)
        place = timeline.follow(first.client, run.id)
        timeline.stopped()
        for sites in ("**/conv2d*:out", "**/conv2d*:grad_in"):
            place.control("until", sites=sites)
            timeline.until(lambda message, sites=sites: message["type"] == "stop" and "conv2d" in str(message))
        first.kill()
    ran = run.end()
    assert ran.code == 0, ran.err
    assert "the training goes on" in ran.err
    assert ran.result == bare.result


def test_a_stop_survives_the_hub(foundry: Foundry, tmp_path: Path) -> None:
    """Stopped, hub killed, hub back: still stopped at the same place, and it can be let go."""
    port = free_port()
    first = HubProcess(tmp_path, port=port, token=TOKEN)
    with first.client.live() as live:
        run = Training(foundry, tmp_path, first.address.link, steps=50, watch=[("2:grad", "norm > 0")], on_hit="pause")
        timeline = Timeline(live)
        timeline.follow(first.client, run.id)
        timeline.stopped()
        first.kill()
    with hub(tmp_path, port=port, token=TOKEN) as second, second.client.live() as live:
        timeline = Timeline(live)
        place = timeline.follow(second.client, run.id)
        assert timeline.stopped()["stop"]["site"] == "2:grad"
        assert place.get("tensor", address="2:grad")["shape"] == [32, 4]
        place.control("continue")
        assert run.end().code == 0


def test_a_training_that_dies_is_told_of(there: HubProcess, foundry: Foundry, tmp_path: Path) -> None:
    with training(foundry, tmp_path, there.address.link) as run, there.client.live() as live:
        timeline = Timeline(live)
        place = timeline.follow(there.client, run.id)
        process = timeline.state("running")["state"]["pid"]
        timeline.type("digests")
        os.kill(process, signal.SIGKILL)
        timeline.until(lambda m: m["type"] == "state" and not m["state"]["connected"])
        assert run.end().code == 137
        assert place.state()["state"] == "killed"
        assert place.get("sites")
        with pytest.raises(HubError) as refused:
            place.control("pause")
        assert refused.value.status == 409


def test_no_hub_is_no_harm(foundry: Foundry, tmp_path: Path) -> None:
    with training(foundry, tmp_path, f"http://127.0.0.1:{free_port()}/?token=x", steps=300) as run:
        ran = run.end()
    assert ran.code == 0
    assert ran.err.count("no hub answers") == 1


def test_a_wrong_token_is_told_once_and_no_harm(there: HubProcess, foundry: Foundry, tmp_path: Path) -> None:
    with training(
        foundry,
        tmp_path,
        f"{there.address.url}/?token=wrong",
        env={"TENSONDE_WAIT": "1"},
        code=WAITING + TRAINING,
        steps=5,
    ) as run:
        ran = run.end()
    assert ran.code == 0
    assert ran.err.count("wrong or no token") == 1
    assert run.id not in {entry["id"] for entry in there.client.runs()}


WAITING = """
import logging, threading
told = threading.Event()
class Listening(logging.Handler):
    def emit(self, record):
        told.set()
logging.getLogger("tensonde.agent").addHandler(Listening())
import torch
torch.nn.Linear(1, 1)(torch.ones(1))
told.wait(30)
"""


def test_mindspores_variables_lead_to_the_hub(there: HubProcess, foundry: Foundry, tmp_path: Path) -> None:
    env = {
        "TENSONDE_HUB": None, "ENABLE_MS_DEBUGGER": "1", "MS_DEBUGGER_HOST": "127.0.0.1", "MS_DEBUGGER_PORT": str(there.port),
        "TENSONDE_HUB_TOKEN": there.address.token,
    }  # fmt: skip
    with there.client.live() as live, training(foundry, tmp_path, "", env=env) as run:
        Timeline(live).follow(there.client, run.id).control("terminate")
        assert run.end().code == 0


def test_attach_is_the_terminal_debugger(there: HubProcess, foundry: Foundry, tmp_path: Path) -> None:
    with training(foundry, tmp_path, there.address.link) as run, there.client.live() as live:
        Timeline(live).follow(there.client, run.id)
        lines = "where\nstep 2\nprint 0:out[0,:3]\nbreak 2:grad\ncontinue\ninfo breakpoints\nquit\ny\n"
        done = cli("attach", "--run", "run", there.address.link, cwd=tmp_path, stdin=lines)
        assert done.code == 0, done.err
        assert "● paused" in done.err
        assert "● end of step" in done.err
        assert "0:out[0,:3]  float32[3]" in done.err
        assert "● breakpoint 1" in done.err
        assert "the training is over" in done.err
        assert run.end().code == 0


def test_attach_finds_the_users_own_hub_and_lists(tmp_path: Path) -> None:
    none = cli("attach", cwd=tmp_path, env={"XDG_RUNTIME_DIR": str(tmp_path)})
    assert none.code == 2
    assert "no hub is known" in none.err
    with hub(tmp_path):
        note = tmp_path / "tensonde" / "hub.json"
        assert note.stat().st_mode & 0o777 == 0o600
        found = cli("attach", "--list", cwd=tmp_path, env={"XDG_RUNTIME_DIR": str(tmp_path)})
        assert found.code == 0
        assert "no training is connected" in found.err
    assert not note.exists()


def test_run_ui_starts_a_hub_that_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    done = cli("run", "--ui", "train.py", "20", cwd=tmp_path, env={"XDG_RUNTIME_DIR": str(tmp_path)})
    assert done.code == 0, done.err
    link = next(line for line in done.err.splitlines() if "the UI is at" in line).rpartition(" ")[2]
    with pytest.raises(HubError) as gone:
        Client(Address.parse(link)).runs()
    assert gone.value.status == 0
    (run,) = (tmp_path / ".tensonde" / "runs").iterdir()
    assert json.loads((run / "rank0" / "session.json").read_text())["failures"] == {}
