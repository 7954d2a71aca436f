"""Two recordings that differ in one setting: the hub says where they part, and how far each pair of tensors is apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
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
model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16, eps=1e-5), nn.GELU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def web(foundry: Foundry, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    scripts = {
        "one": TRAINING,
        "other": TRAINING.replace("eps=1e-5", "eps=1e-2"),
        "faster": TRAINING.replace("lr=0.1", "lr=0.2"),
        "strange": TRAINING.replace("16", "23").replace("(8,", "(5,").replace("32, 8", "32, 5"),
    }
    folders: list[Path] = []
    for name, text in scripts.items():
        cwd = tmp_path_factory.mktemp(name)
        ran = foundry.watched(text, cwd, budget=0.05, recommended=False)
        assert ran.code == 0, ran.err
        assert ran.folder is not None
        folders.append(ran.folder.rename(ran.folder.with_name(name)))
    return TestClient(create_app(Hub(Library(folders))))


def runs(web: TestClient) -> dict[str, str]:
    return {Path(run["path"]).name: f"{run['id']}/rank0" for run in web.get("/api/runs").json()}


def compare(web: TestClient, a: str, b: str) -> Any:
    known = runs(web)
    answer = web.get("/api/compare", params={"a": known[a], "b": known[b]})
    assert answer.status_code == 200, answer.text
    TypeAdapter(models.Comparison).validate_json(answer.content)
    return answer.json()


def rows(found: Any) -> dict[tuple[str, str], tuple[str, str]]:
    columns = found["differences"]
    assert len({len(column) for column in columns.values()}) == 1
    names = zip(columns["phase"], columns["a"], strict=True)
    return dict(zip(names, zip(columns["b"], columns["status"], strict=True), strict=True))


def test_the_first_divergence_and_what_follows_from_it(web: TestClient) -> None:
    found = compare(web, "one", "other")
    assert (found["verdict"], found["judgement"], found["first"]["site"]) == ("divergent", "forward", "1:out")
    assert found["settings"][0] == {"what": "1.eps", "a": 1e-5, "b": 1e-2}
    seen = rows(found)
    assert seen["forward", "1:out"] == ("1:out", "origin")
    assert seen["forward", "0:out"][1] == seen["forward", "0.weight:value"][1] == "equal"
    assert {seen["forward", name][1] for name in ("2:out", "3:out")} == {"different"}
    assert seen["backward", "0.weight:grad"][1] == "different"
    columns = found["differences"]
    at = columns["status"].index("origin")
    assert columns["status"].index("different") > at  # the module first, then what the framework does inside of it
    assert 0 < columns["rel_l2"][at] < 1
    # The graph that it speaks of is there, and has the nodes that it names.
    graph = web.get(f"/api/runs/{runs(web)['one']}/graph", params={"source": found["graphs"]["a"]}).json()
    assert graph["step"] == found["step"] == 0
    assert {"0", "1", "2", "3"} <= set(graph["scopes"]["name"])


def test_a_difference_of_the_optimizer_leaves_the_passes_equal(web: TestClient) -> None:
    found = compare(web, "one", "faster")
    assert (found["judgement"], found["first"]["phase"]) == ("optimizer", "optimizer")
    by_phase: dict[str, set[str]] = {}
    for (phase, _), (_, status) in rows(found).items():
        by_phase.setdefault(phase, set()).add(status)
    assert by_phase["forward"] <= {"equal", "rounding"}
    assert by_phase["backward"] <= {"equal", "rounding"}
    assert by_phase["optimizer"] == {"origin", "different"}


def test_a_run_is_equivalent_to_itself(web: TestClient) -> None:
    found = compare(web, "one", "one")
    assert (found["verdict"], found["first"]) == ("equivalent", None)
    assert set(found["differences"]["status"]) == {"equal"}


def test_refusals_are_sentences(web: TestClient) -> None:
    known = runs(web)
    for a, b, status, words in (
        (known["one"], known["strange"], 422, "nothing in common"),
        (known["one"], "nowhere/rank0", 404, "there is no run"),
        (known["one"], "nowhere", 422, "names no rank"),
    ):
        answer = web.get("/api/compare", params={"a": a, "b": b})
        assert answer.status_code == status, answer.text
        assert words in answer.json()["error"]
