"""The tools that read, over both transports, on a recording of a training that goes wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_drive import TOKENS, Agent, Refused, over_http, over_stdio
from hub_drive import hub

from launch import Foundry, skip_if_quick
from tensonde.mcp.answer import CHARACTERS_PER_TOKEN
from tensonde.model.documents import DOCUMENTS

SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.randn(6, 8)
    p = model(x).softmax(1)
    if step == 2:
        p = p * (p > 1)
    loss = -torch.log(p).mean()  # HERE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LINE = next(k for k, line in enumerate(SCRIPT.splitlines(), 1) if "HERE" in line)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, foundry: Foundry) -> Path:
    made = tmp_path_factory.mktemp("agent")
    ran = foundry.watched(SCRIPT, made, record=made / ".tensonde" / "runs")
    assert ran.code == 0, ran.err
    return made


@pytest.fixture(scope="module")
def stdio(folder: Path) -> Iterator[Agent]:
    skip_if_quick()
    with over_stdio(folder) as agent:
        yield agent


@pytest.fixture(scope="module")
def http(folder: Path) -> Iterator[Agent]:
    skip_if_quick()
    with hub(folder) as made, over_http(made.address) as agent:
        yield agent


@pytest.fixture(params=["stdio", "http"])
def agent(request: pytest.FixtureRequest) -> Agent:
    found: Agent = request.getfixturevalue(request.param)
    return found


def test_the_findings_lead_to_the_line(agent: Agent) -> None:
    answer = agent.ask("findings")
    assert answer["kind"] == "report"
    first = answer["answer"]["findings"][0]
    assert first["source"]["line"] == LINE
    assert any(f"script.py:{LINE}" in hint for hint in answer["next"])
    (lines, *_) = answer["excerpts"]
    assert "HERE" in lines["lines"][LINE - lines["first"]]


def test_the_op_has_its_inputs(agent: Agent) -> None:
    first = agent.ask("findings")["answer"]["findings"][0]
    node = agent.ask("node", name=first["site"].rpartition(":")[0], step=first["step"])["answer"]
    assert node["type"] == "log"
    assert node["inputs"][0]["digest"]["min"] == 0.0
    assert not any(key.startswith("sketch") for key in node["inputs"][0]["digest"])


EVERY: list[tuple[str, dict[str, Any]]] = [
    ("list_runs", {}),
    ("findings", {}),
    ("show_run", {}),
    ("digests", {"site": "loss:value"}),
    ("digests", {"site": "**:grad"}),
    ("query", {"sql": "SELECT * FROM digests"}),
    ("trace", {}),
    ("node", {"name": "0"}),
    ("tensors", {}),
    ("source", {"file": "script.py", "line": 3}),
    ("state", {}),
    ("watchpoints", {}),
    ("recheck", {"sites": "**:grad", "condition": "nan > 0"}),
]


@pytest.mark.parametrize(("tool", "arguments"), EVERY, ids=lambda value: value if isinstance(value, str) else "")
def test_answers_are_small_the_same_again_and_of_a_known_kind(
    stdio: Agent, tool: str, arguments: dict[str, Any]
) -> None:
    text = stdio.text(tool, **arguments)
    assert len(text) <= TOKENS * CHARACTERS_PER_TOKEN
    assert text == stdio.text(tool, **arguments)
    answer = json.loads(text)
    assert answer["schema"] == DOCUMENTS[answer["kind"]].version
    assert answer["next"] or tool == "source"


def test_a_longer_answer_can_be_asked_for(stdio: Agent) -> None:
    short = stdio.ask("query", sql="SELECT * FROM digests")
    assert short["left_out"]
    assert "max_tokens" in short["next"][-1]
    long = stdio.ask("query", sql="SELECT * FROM digests", max_tokens=20_000)
    assert len(long["answer"]) > len(short["answer"])
    assert long["answer"][: len(short["answer"])] == short["answer"]
    rest = stdio.ask("query", sql="SELECT step, site FROM digests ORDER BY ord, site", first=50)
    after = stdio.ask("query", sql="SELECT step, site FROM digests ORDER BY ord, site OFFSET 50")
    assert rest["answer"] == after["answer"] != []


def test_a_kept_tensor_by_the_slice(stdio: Agent) -> None:
    kept = stdio.ask("tensors", contains="grad", max_tokens=20_000)["answer"]
    address = next(one["address"] for one in kept if len(one["shape"]) == 2)
    tile = stdio.ask("tensor", address=address, rows="0:2", cols="0:3")["answer"]
    assert len(tile["values"]) == 2
    assert len(tile["values"][0]) == 3


@pytest.mark.parametrize(
    ("tool", "arguments", "sentence"),
    [
        ("findings", {"run": "gone"}, "there is no run 'gone' here; the newest are"),
        ("tensor", {"address": "0.weight:value", "rows": "0:100000"}, "ask for 1 to 64 at a time"),
        ("tensor", {"address": "0.weight:nothing"}, "0.weight:nothing"),
        ("query", {"sql": "DROP VIEW digests"}, "recordings are only read"),
        ("query", {"sql": "COPY (SELECT 1) TO 'out.csv'"}, "disabled"),
        ("query", {"sql": "SELECT * FROM read_csv('/etc/passwd')"}, "disabled"),
        ("source", {"file": "/etc/passwd", "line": 1}, "no source file of this run"),
        ("run_script", {"script": "script.py"}, "--allow-run"),
        ("replay", {}, "--allow-run"),
        ("start_script", {"script": "script.py"}, "--allow-run"),
        ("debugger", {"line": "info"}, "--allow-run"),
        ("control", {"action": "pause"}, "only be done to a live training"),
        ("control", {"action": "fly"}, "pause"),
        ("query", {"sql": "SELECT 1", "runs": ["x"]}, "query has no argument runs; it takes sql, run"),
        ("tensor", {}, "address is missing"),
        ("findings", {"count": "many"}, "count is 'many'"),
        ("watch", {"sites": "**", "condition": "nan > 0"}, "only be done to a live training"),
        ("digests", {"site": "loss:vlue"}, "loss:value"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_with_a_sentence(
    agent: Agent, folder: Path, tool: str, arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(Refused) as refused:
        agent.text(tool, **arguments)
    assert sentence in str(refused.value)
    assert "Traceback" not in str(refused.value)
    assert not (folder / "out.csv").exists()


def test_resources_are_the_runs_and_their_reports(agent: Agent) -> None:
    (run,) = agent.resource("tensonde://runs")
    report = agent.resource(f"tensonde://runs/{run['name']}/report")
    assert report["findings"][0]["source"]["line"] == LINE
    assert agent.resource(f"tensonde://runs/{run['name']}/summary")["steps"] == 4


def test_a_resource_of_a_run_that_is_gone_is_refused_by_the_protocol(stdio: Agent) -> None:
    from mcp.shared.exceptions import MCPError

    with pytest.raises(MCPError, match="gone"):
        stdio.resource("tensonde://runs/gone/report")


def test_prompts_name_tools_that_there_are(stdio: Agent) -> None:
    names = {tool.name for tool in stdio.tools()}
    assert {prompt.name for prompt in stdio.prompts()} == {"why_nan", "why_not_learning", "port_differs"}
    for prompt in ("why_nan", "why_not_learning"):
        text = stdio.prompt(prompt, script="other.py")
        assert "other.py" in text
        assert len([name for name in names if name in text]) >= 4


def test_every_tool_says_whether_it_only_reads(stdio: Agent) -> None:
    reads = {tool.name for tool in stdio.tools() if tool.annotations.read_only_hint}
    assert {"findings", "query", "tensor"} <= reads
    assert not reads & {
        "run_script",
        "check_script",
        "replay",
        "start_script",
        "control",
        "watch",
        "unwatch",
        "debugger",
    }


def test_without_the_token_the_hub_answers_nothing(folder: Path) -> None:
    import httpx

    skip_if_quick()
    with hub(folder) as made:
        url = f"{made.address.url}/api/mcp"
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert httpx.post(url, json=asked, trust_env=False).status_code == 401
        elsewhere = {"Authorization": f"Bearer {made.address.token}", "Origin": "http://evil.example"}
        assert httpx.post(url, json=asked, headers=elsewhere, trust_env=False).status_code == 403
