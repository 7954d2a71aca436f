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

    relu = forward["nodes"]["name"][forward["nodes"]["op"].index("relu")]
    answer = web.get(f"{base}/node?name={quote(relu, safe='')}")
    assert answer.status_code == 200, answer.text
    TypeAdapter(models.Node).validate_json(answer.content)
    node = answer.json()
    assert node["before"]
    assert node["after"]
