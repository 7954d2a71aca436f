"""The reading endpoints on a recording that was really made: every answer has the declared form, and says what the recording says."""

from __future__ import annotations

import io
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from launch import cli
from tensonde.model.moment import Moment, Phase
from tensonde.server import models
from tensonde.server.app import create_app
from tensonde.server.hub import Hub
from tensonde.server.library import Library
from tensonde.server.openapi import text
from tensonde.store.claim import claim_rank, create_run
from tensonde.store.reader import Recording
from tensonde.store.values import encode_value

ROOT = Path(__file__).parent.parent.parent
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("recorded")
    shutil.copy(ROOT / "examples" / "focal_loss.py", folder)
    done = cli("run", "--budget", "off", "--record", "out", "focal_loss.py", cwd=folder)
    assert done.code == 0, done.err
    return Recording.open(folder / "out")


@pytest.fixture(scope="module")
def web(recording: Recording) -> TestClient:
    return TestClient(create_app(Hub(Library([recording.path]))))


@pytest.fixture(scope="module")
def ask(web: TestClient) -> Ask:
    (run,) = web.get("/api/runs").json()
    TypeAdapter(models.Run).validate_python(run)

    def ask(what: str, model: Any, **query: Any) -> Any:
        answer = web.get(f"/api/runs/{run['id']}/rank0/{what}", params=query)
        assert answer.status_code == 200, answer.text
        TypeAdapter(model).validate_json(answer.content)
        return answer.json()

    return ask


@pytest.fixture(scope="module")
def refused(web: TestClient) -> Ask:
    (run,) = web.get("/api/runs").json()

    def refused(status: int, what: str, **query: Any) -> str:
        answer = web.get(f"/api/runs/{run['id']}/rank0/{what}", params=query)
        assert answer.status_code == status, answer.text
        TypeAdapter(models.Problem).validate_json(answer.content)
        return str(answer.json()["error"])

    return refused


def test_the_questions_of_experiments_come_with_their_answers(recording: Recording, tmp_path: Path) -> None:
    shutil.copytree(recording.path, tmp_path / "asked")
    facts = tmp_path / "asked" / "rank0" / "facts.json"
    line = {"file": "train.py", "line": 7, "code": "loss = f(x)"}
    told = [
        {"experiment": "constant", "question": "Better?", "step": 50, "healthy": True, "why": "0.15", "numbers": {"ratio": 0.15}},
        {"experiment": "inputs", "question": "Needed?", "step": 3, "healthy": False, "why": "t is not", "names": ["t"], "line": line},
        {"experiment": "causal", "question": "Causal?", "step": 3, "why": "no sequence"},
    ]  # fmt: skip
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "answers": told}))
    web = TestClient(create_app(Hub(Library([tmp_path / "asked"]))))
    (run,) = web.get("/api/runs").json()
    found = web.get(f"/api/runs/{run['id']}/rank0/questions")
    better, needed, causal = TypeAdapter(list[models.Question]).validate_json(found.content)
    assert (better.state, better.evidence, better.source) == ("ok", {"ratio": 0.15}, None)
    assert (needed.state, needed.names) == ("problem", ["t"])
    assert needed.source is not None
    assert needed.source.line == 7
    assert (causal.state, causal.answer) == ("unknown", "not asked: no sequence")


def test_memory_is_null_where_nobody_looked(ask: Ask) -> None:
    assert ask("memory", models.Memory | None) is None


def test_runs(web: TestClient, recording: Recording) -> None:
    (run,) = web.get("/api/runs").json()
    assert run["id"] == recording.manifest["id"]
    assert run["state"] == "finished"
    (rank,) = run["ranks"]
    assert (rank["steps"], rank["hits"]) == (60, len(recording.hits))
    assert rank["findings"] == len(recording.findings)
    assert web.get("/api/runs/nope/rank0/sites").status_code == 404
    assert web.get(f"/api/runs/{run['id']}/rank7/sites").status_code == 404


def test_sites_status_and_latest(ask: Ask, refused: Ask, recording: Recording) -> None:
    sites = ask("sites", list[models.Site])
    assert len(sites) == len(recording.ranks[0].sites)
    early, late = ask("status", models.Status, step=5), ask("status", models.Status)
    assert "bad" not in early["status"]
    assert late["status"].count("bad") > 5
    by_id = {site["id"]: site["address"] for site in sites}
    norms = dict(
        zip(
            (by_id[id] for id in early["sites"]),
            ask("status", models.Status, step=5, field="norm")["value"],
            strict=True,
        )
    )
    (latest,) = ask("latest", list[models.Latest], site="head:out", step=5)
    assert latest["step"] == 5
    assert latest["digest"]["norm"] == norms["head:out"]
    assert "norm" in refused(422, "status", field="bla")
    assert "bracket" in refused(422, "latest", site="[")


def test_digests_are_those_of_the_recording_and_thinned_without_losing_extremes(
    ask: Ask, refused: Ask, recording: Recording
) -> None:
    rank = recording.ranks[0]
    site = next(site for site in rank.sites.values() if site.address == "head:out")
    table = rank.digests(sites=[site.id]).to_pydict()
    whole = ask("digests", models.Digests, site="head:out", fields="absmax,nans", points=1000)
    assert whole["step"] == table["step"]
    assert not whole["thinned"]
    assert [float(value) for value in whole["fields"]["absmax"]] == pytest.approx(table["absmax"], nan_ok=True)
    few = ask("digests", models.Digests, site="head:out", fields="absmax", points=10)
    assert few["thinned"]
    assert len(few["step"]) < 30
    finite = [value for value in table["absmax"] if np.isfinite(value)]
    assert {min(finite), max(finite)} <= {value for value in few["fields"]["absmax"] if value != "NaN"}
    part = ask("digests", models.Digests, site="head:out", fields="norm", **{"from": 10, "to": 12})
    assert part["step"] == [10, 11, 12]
    assert "head:out" in refused(404, "digests", site="heda:out")
    histograms = ask("histograms", models.Histograms, site="head:out", points=5)
    assert len(histograms["edges"]) == len(histograms["counts"][0]) + 1


def test_scalars_hits_findings_events_settings(ask: Ask, refused: Ask, recording: Recording) -> None:
    assert "loss" in ask("scalars", models.ScalarNames)["names"]
    loss = ask("scalars", models.Scalars, name="loss")
    assert loss["step"] == list(range(60))
    assert "NaN" in loss["value"]
    assert "loss" in refused(404, "scalars", name="lss")
    hits = ask("hits", models.Hits)
    assert [hit["ord"] for hit in hits["hits"]] == list(range(len(recording.hits)))
    assert [hit["ord"] for hit in ask("hits", models.Hits, after=3, limit=2)["hits"]] == [4, 5]
    findings = ask("findings", list[models.Finding])
    assert findings[0]["rule"] == "nan-origin"
    assert ask("events", models.Events)["events"][0]["kind"] == "traced"
    assert ask("settings", models.Settings)["optimizers"][0]["type"] == "SGD"


def test_graph_and_nodes(ask: Ask, refused: Ask) -> None:
    worst = ask("graph", models.Graph)
    assert worst["step"] == 43, "the step that went wrong comes first"
    assert worst["nodes"]["health"][worst["nodes"]["name"].index("criterion/log#0")] == "bad"
    graph = ask("graph", models.Graph, source="trace:0")
    assert "bad" not in graph["nodes"]["health"]
    names, scopes = graph["nodes"]["name"], graph["scopes"]
    at = names.index("criterion/log#0")
    assert scopes["name"][graph["nodes"]["scope"][at]] == "criterion"
    inner = scopes["name"].index("encoder.0")
    assert scopes["name"][scopes["parent"][inner]] == "encoder"
    assert scopes["name"][scopes["parent"][scopes["parent"][inner]]] == "model", (
        "the bare root holds what it does not name"
    )
    assert {"op", "parameter", "input", "loss"} == set(graph["nodes"]["kind"])
    edges = set(zip(graph["edges"]["from"], graph["edges"]["to"], strict=True))
    assert (names.index("encoder.0/linear#0"), names.index("encoder.1/relu#0")) in edges
    assert (names.index("encoder.0.weight"), names.index("encoder.0/linear#0")) in edges
    assert all(0 <= end < len(names) for edge in edges for end in edge)
    backward = ask("graph", models.Graph, phase="backward")
    flow = set(zip(backward["edges"]["from"], backward["edges"]["to"], strict=True))
    place = backward["nodes"]["name"].index
    assert (place("encoder.1/relu#0 (backward)"), place("encoder.0/linear#0 (backward)")) in flow
    modules = ask("graph", models.Graph, source="module")
    assert "head" in modules["nodes"]["name"]
    assert "trace:0" in refused(422, "graph", source="nope")

    node = ask("node", models.Node, name="criterion/log#0")
    assert node["step"] == 43
    assert node["outputs"][0]["digest"]["neg_inf"] == 1
    assert node["before"]
    assert ask("node", models.Node, name="encoder.0")["parameters"][0]["address"] == "encoder.0.weight:value"
    weight = ask("node", models.Node, name="encoder.0.weight (gradient)")
    assert (weight["kind"], weight["after"]) == ("parameter", ["encoder.0/linear#0"])
    # Neighbours are those that a tensor goes between, not what happened to run before; ops come with their numbers, too.
    outer = ask("node", models.Node, name="encoder")
    assert (outer["before"], outer["after"]) == (["input#0"], ["head"])
    loss = ask("node", models.Node, name="criterion")
    assert loss["before"]
    assert set(loss["before"]) <= loss["around"].keys()
    assert "encoder.0" in refused(404, "node", name="encodr.0")
    # What comes from outside of the step is a node as well, as it is in the graph.
    data = ask("node", models.Node, name="input#0")
    assert (data["kind"], data["before"], data["outputs"][0]["from"]) == ("input", [], "input#0")
    first = ask("node", models.Node, name=data["after"][0])
    assert "input#0" in first["before"]
    assert first["around"]["input#0"] == data["outputs"][0]
    assert "input#0" in {port["from"] for port in first["inputs"]}


def test_source_only_of_the_run(ask: Ask, refused: Ask, recording: Recording) -> None:
    place = recording.findings[0].source
    assert place is not None
    shown = ask("source", models.Excerpt, file=place.file, line=place.line, around=1)
    assert shown["lines"][place.line - shown["first"]].strip() == place.code
    for file in ("/etc/passwd", "../../../../../../etc/passwd", str(Path(json.__file__)), "out/run.json", "x\0y"):
        assert "no source file" in refused(404, "source", file=file, line=1)


def test_captured_tensors(ask: Ask, refused: Ask, web: TestClient, recording: Recording) -> None:
    at_hand = ask("tensors", list[models.TensorAtHand])
    value = next(value for value in recording.values if len(value.shape) == 2)
    assert value.site in {entry["address"] for entry in at_hand}
    content = recording.load(value)
    tile = ask("tensor", models.Tile, address=value.site, step=value.moment.step, rows="1:3", cols="0:2")
    assert np.array_equal(np.array(tile["values"], float).astype(np.float32), content[1:3, :2], equal_nan=True)
    line = ask("tensor", models.Tile, address=value.site, index="2,:")
    assert line["plane"] == [1, content.shape[1]]
    assert refused(422, "tensor", address=value.site, index="999")
    assert refused(422, "tensor", address=value.site, index="0,0,0")
    assert refused(422, "tensor", address=value.site, index="x")
    assert "no value" in refused(409, "tensor", address="encoder:in")
    same = ask("tensor", models.Tile, address=value.site, against=f"step:{value.moment.step}")["against"]
    assert same["equal"]
    assert same["max_abs"] == 0
    histogram = ask("tensor/histogram", models.TensorHistogram, address=value.site, bins=7)
    assert sum(histogram["counts"]) + histogram["nan"] + histogram["pos_inf"] + histogram["neg_inf"] == content.size
    (run,) = web.get("/api/runs").json()
    file = web.get(f"/api/runs/{run['id']}/rank0/tensor.npy", params={"address": value.site}).content
    assert np.array_equal(np.load(io.BytesIO(file)), content, equal_nan=True)


def test_rechecking_finds_what_the_training_found(web: TestClient, ask: Ask, recording: Recording) -> None:
    (run,) = web.get("/api/runs").json()
    base = f"/api/runs/{run['id']}/rank0"
    points = ask("watchpoints", list[models.Watchpoint])
    for point in points:
        found = web.post(f"{base}/watchpoints/recheck", json={"id": point["id"]}).json()
        TypeAdapter(models.Rechecked).validate_python(found)
        recorded = [(hit.site, hit.moment.step) for hit in recording.hits if hit.watchpoint == point["id"]]
        assert [(hit["site"], hit["step"]) for hit in found["hits"]] == recorded, point["condition"]
    wrong = web.post(f"{base}/watchpoints/recheck", json={"sites": "**", "condition": "norm >"})
    assert wrong.status_code == 422
    match = web.post(f"{base}/match", json={"pattern": "encoder.*:out"}).json()
    assert match["count"] == 4
    assert web.post(f"{base}/match", json={"pattern": "x:nope"}).status_code == 422
    acting = [
        ("control", {"action": "pause"}),
        ("watchpoints", {"sites": "**", "condition": "nan"}),
        ("command", {"line": "x"}),
    ]
    for what, body in acting:
        answer = web.post(f"{base}/{what}", json=body)
        assert answer.status_code == 409, "a finished run cannot be acted on"
        assert "live" in answer.json()["error"]


def test_the_catalogue_is_the_languages(web: TestClient) -> None:
    from tensonde.watch.conditions import CONDITIONS, parse

    found = web.get("/api/conditions").json()
    TypeAdapter(models.Conditions).validate_python(found)
    assert [entry["name"] for entry in found["conditions"]] == [condition.name for condition in CONDITIONS]
    for entry in found["conditions"]:
        parse(entry["example"])
        assert entry["fits"]


def test_the_api_document_is_fresh() -> None:
    assert (ROOT / "web" / "openapi.json").read_text() == text(), "python -m tensonde.server.openapi > web/openapi.json"


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A recording with one captured tensor of 1 GiB, most of it a hole in the file."""
    run = create_run(tmp_path, "large", {"script": "x.py", "argv": []})
    rank = claim_rank(run, 0)
    (rank / "session.json").write_text("{}")
    (rank / "values").mkdir()
    shape = (16384, 16384)
    head, _ = encode_value("big:out", Moment(3, Phase.FORWARD), b"", "float32", (0,))
    header = json.loads(head[8:])
    header["big:out"].update(shape=list(shape), data_offsets=[0, 1 << 30])
    header["__metadata__"]["shape"] = json.dumps(list(shape))
    encoded = json.dumps(header).encode()
    with open(rank / "values" / "000000.safetensors", "wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        file.truncate(8 + len(encoded) + (1 << 30))
        for k in range(0, 16384, 512):
            file.seek(8 + len(encoded) + (k * 16384 + k) * 4)
            file.write(np.float32(k).tobytes())
    return run


def test_a_gigabyte_opens_at_once(large: Path) -> None:
    web = TestClient(create_app(Hub(Library([large]))))
    (run,) = web.get("/api/runs").json()
    base = f"/api/runs/{run['id']}/rank0/tensor"
    began = time.process_time()
    tile = web.get(base, params={"address": "big:out", "rows": "512:514", "cols": "512:514"})
    assert tile.json()["values"] == [[512.0, 0.0], [0.0, 0.0]]
    picture = web.get(base, params={"address": "big:out", "overview": 256}).json()
    assert len(picture["values"]) <= 256
    assert "sample" in picture["note"]
    took = time.process_time() - began
    assert took < 4.0  # half a second on a quiet machine
    most = web.get(base, params={"address": "big:out", "rows": "0:16384", "cols": "0:16384"}).json()
    assert len(most["values"]) * len(most["values"][0]) <= 65_536
