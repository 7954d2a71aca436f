"""Graphs that torch.compile made are sources of the graph endpoint, with their nodes' details."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from launch import Foundry
from tensonde.server import models
from tensonde.server.app import create_app
from tensonde.server.hub import Hub
from tensonde.server.library import Library

TRAINING = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
fast = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    loss = fast(torch.rand(16, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_compiled_graph_is_shown_forward_and_backward(foundry: Foundry, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TRAINING)
    ran = foundry.watched(tmp_path / "script.py", tmp_path, graph="nodes")
    web = TestClient(create_app(Hub(Library([ran.recording.path]))))
    (run,) = web.get("/api/runs").json()
    base = f"/api/runs/{run['id']}/rank0"

    answers = {}
    for phase in ("forward", "backward", "all"):
        answer = web.get(f"{base}/graph", params={"source": "compiled:0", "phase": phase})
        assert answer.status_code == 200, answer.text
        TypeAdapter(models.Graph).validate_json(answer.content)
        answers[phase] = answer.json()
    forward, backward, both = answers["forward"], answers["backward"], answers["all"]
    assert "compiled:0" in {entry["id"] for entry in both["sources"]}
    assert "relu" in forward["nodes"]["op"]
    assert set(backward["nodes"]["phase"]) == {"backward"}
    assert len(both["nodes"]["name"]) == len(forward["nodes"]["name"]) + len(backward["nodes"]["name"])
    assert {"0", "2"} <= {name.rpartition(".")[2] for name in both["scopes"]["name"]}
    assert len(set(both["scopes"]["name"])) == len(both["scopes"]["name"])
    for graph in answers.values():
        count, scopes = len(graph["nodes"]["name"]), len(graph["scopes"]["name"])
        assert all(0 <= node < count for end in ("from", "to") for node in graph["edges"][end])
        assert all(-1 <= scope < scopes for scope in graph["nodes"]["scope"])

    # What is only saved for the backward pass is not drawn as an output of the program.
    names, ends = forward["nodes"]["name"], zip(forward["edges"]["from"], forward["edges"]["to"], strict=True)
    returned = [names[origin] for origin, target in ends if forward["nodes"]["kind"][target] == "output"]
    assert len(returned) == 1, returned
    assert "2" in returned[0].partition("/")[0].split("."), returned

    relu = forward["nodes"]["name"][forward["nodes"]["op"].index("relu")]
    answer = web.get(f"{base}/node?name={quote(relu, safe='')}")
    assert answer.status_code == 200, answer.text
    TypeAdapter(models.Node).validate_json(answer.content)
    node = answer.json()
    assert node["before"]
    assert node["after"]

    # Inputs have the program's names, parameters are folded into their modules; without being asked for, this is what opens.
    assert not [name for name in both["nodes"]["name"] if "primals" in name or "tangents" in name]
    kinds = dict(zip(forward["nodes"]["name"], forward["nodes"]["kind"], strict=True))
    assert {"0.weight": "parameter", "2.bias": "parameter"}.items() <= kinds.items()
    assert sum(kind == "input" for kind in kinds.values()) == 1
    scope = forward["nodes"]["scope"][forward["nodes"]["name"].index("0.weight")]
    assert forward["scopes"]["name"][scope].rpartition(".")[2] == "0"
    assert any(name.endswith("(saved)") for name in backward["nodes"]["name"])
    assert "gradient of output 0" in backward["nodes"]["name"]
    opened = web.get(f"{base}/graph").json()
    assert opened["source"] == "compiled:0"
    assert "modules, as in eager mode" in {entry["label"] for entry in opened["sources"]}
    eager = web.get(f"{base}/graph", params={"source": "module"}).json()
    parents = dict(zip(eager["scopes"]["name"], eager["scopes"]["parent"], strict=True))
    assert eager["scopes"]["name"][parents["module"]] == "fast"

    # What the graph did not compute is null, everywhere: neither NaN nor 0.
    fields = ("absmax", "mean", "norm", "zero", "negative", "rms", "nonfinite")
    address = next(port["address"] for port in node["outputs"] if port["digest"])
    answer = web.get(f"{base}/digests", params={"site": address, "fields": ",".join(fields)})
    TypeAdapter(models.Digests).validate_json(answer.content)
    curves = answer.json()["fields"]
    assert all(value > 0 for value in curves["absmax"])
    assert {name for name in fields if None in curves[name]} == {"mean", "norm", "zero", "negative", "rms"}
    (port,) = (port for port in node["outputs"] if port["address"] == address)
    assert {name for name in fields if port["digest"][name] is None} == {"mean", "norm", "zero", "negative", "rms"}
    for condition, known in (("absmax > 0", True), ("mean > 1e9", False), ("zeros > 0.5 or nan > 0", False)):
        asked = {"sites": address, "condition": condition}
        found = web.post(f"{base}/watchpoints/recheck", json=asked).json()
        assert (found["checked"] > 0, found["unknown"] > 0, bool(found["hits"])) == (known, not known, known), found
    assert web.get(f"{base}/histograms", params={"site": address}).json()["step"] == []
    status = web.get(f"{base}/status", params={"field": "norm"}).json()
    ids = {site["address"]: site["id"] for site in web.get(f"{base}/sites").json()}
    assert status["value"][status["sites"].index(ids[address])] is None
    assert status["value"][status["sites"].index(ids["0.weight:value"])] > 0


WRAPPED = """
import os, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=0, world_size=1)
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    loss = model(torch.rand(16, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""


def test_what_ddp_wraps_is_inside_it_and_around_the_rest(foundry: Foundry, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(WRAPPED)
    ran = foundry.watched(tmp_path / "script.py", tmp_path)
    web = TestClient(create_app(Hub(Library([ran.recording.path]))))
    (run,) = web.get("/api/runs").json()
    for source in ("trace:0", "module"):
        scopes = web.get(f"/api/runs/{run['id']}/rank0/graph", params={"source": source}).json()["scopes"]
        parents = dict(zip(scopes["name"], scopes["parent"], strict=True))
        assert parents["model"] == -1, source
        assert scopes["name"][parents["module"]] == "model", source
        if "0" in parents:
            assert scopes["name"][parents["0"]] == "module", source
