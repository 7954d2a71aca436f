"""Conversations of an editor with `tensonde dap`, from launch to end."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from dap_drive import Editor, Failed, over_stdio, over_tcp
from hub_drive import hub, training

from launch import Foundry, skip_if_quick
from tensonde.dap.session import DebugSession
from tensonde.dap.wire import Wire

TRAINING = """\
import sys, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 4)
    def forward(self, x):
        h = torch.relu(self.first(x))  # FORWARD
        return self.second(h)
# COMMENT
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = model(torch.randn(6, 8)).square().mean()
    if step == 3:
        loss = loss / 0
    loss.backward()  # BACKWARD
    optimizer.step()
print("done", step)
"""


def line(mark: str) -> int:
    return next(k for k, text in enumerate(TRAINING.splitlines(), 1) if f"# {mark}" in text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    skip_if_quick()
    (tmp_path / "train.py").write_text(TRAINING)
    return tmp_path


def begin(editor: Editor, folder: Path, steps: str = "5", **more: object) -> str:
    """Up to where breakpoints are set."""
    assert editor.ask("initialize", adapterID="tensonde")["supportsDataBreakpoints"]
    path = str(folder / "train.py")
    editor.ask("launch", program=path, args=[steps], cwd=str(folder), **more)
    editor.event("initialized")
    return path


def test_from_launch_to_the_end(folder: Path) -> None:
    with over_stdio(folder) as editor:
        path = begin(editor, folder)
        (at_line,) = editor.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": line("FORWARD"), "condition": "step == 1"}])["breakpoints"]  # fmt: skip
        assert at_line["verified"]
        (moved, after) = editor.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": line("COMMENT")}, {"line": 999}])["breakpoints"]  # fmt: skip
        assert (moved["line"], moved["verified"]) == (line("COMMENT") + 1, True)
        assert not after["verified"]
        assert "has no code" in after["message"]
        (at_line,) = editor.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": line("FORWARD"), "condition": "step == 1"}])["breakpoints"]  # fmt: skip
        (at_module,) = editor.ask("setFunctionBreakpoints", breakpoints=[{"name": "second"}])["breakpoints"]
        editor.ask("setExceptionBreakpoints", filters=["inf"])
        here = editor.now
        editor.ask("configurationDone")
        stopped = editor.event("stopped", here)
        assert (stopped["reason"], stopped["hitBreakpointIds"]) == ("function breakpoint", [at_module["id"]])
        assert editor.ask("threads") == {"threads": [{"id": 1, "name": "rank 0"}]}

        frames = editor.ask("stackTrace", threadId=1)["stackFrames"]
        names = [frame["name"] for frame in frames]
        assert names[:2] == ["second:out in module second", "module model"]
        assert names[-2:] == ["forward", "<module>"]
        assert frames[0]["source"]["path"] == path
        assert frames[0]["line"] == line("FORWARD") + 1
        scopes = {scope["name"]: scope["variablesReference"] for scope in editor.ask("scopes", frameId=frames[0]["id"])["scopes"]}  # fmt: skip
        assert list(scopes)[:4] == ["Inputs", "Outputs", "Gradients", "Parameters"]
        outputs = {one["name"]: one for one in editor.ask("variables", variablesReference=scopes["Outputs"])["variables"]}  # fmt: skip
        assert outputs["second:out"]["value"].startswith("float32 [6, 4]  ")
        inside = editor.ask("variables", variablesReference=outputs["second:out"]["variablesReference"])["variables"]
        assert {"min", "max", "norm", "[0]", "[5]"} <= {one["name"] for one in inside}
        weights = {one["name"] for one in editor.ask("variables", variablesReference=scopes["Parameters"])["variables"]}
        assert {"second.weight:value", "second.bias:value"} <= weights
        hover = editor.ask("evaluate", expression="second.weight:value", frameId=frames[0]["id"], context="hover")
        assert hover["result"].startswith("float32 [4, 16]")
        assert editor.ask("evaluate", expression="first", context="watch")["result"].startswith("float32 [6, 16]")
        assert float(editor.ask("evaluate", expression="second.weight:value norm", context="watch")["result"]) > 0
        assert "second" in editor.ask("evaluate", expression="where", frameId=frames[0]["id"], context="repl")["result"]
        with pytest.raises(Failed, match="nothing_there"):
            editor.ask("evaluate", expression="nothing_there", frameId=frames[0]["id"], context="watch")

        def python(expression: str, frame: int, context: str = "watch") -> str:
            return str(editor.ask("evaluate", expression=expression, frameId=frames[frame]["id"], context=context)["result"])  # fmt: skip

        assert python("h.shape", 0) == "torch.Size([6, 16])"
        assert python("x", 0, "hover").startswith("Tensor float32 [6, 8]")
        assert python("step", -1, "hover") == "0"
        assert python("eval step + 1", -1, "repl") == "1"
        assert "optimizer = SGD" in python("locals", -1, "repl")
        assert "self = Net" in python("locals", -2, "repl")
        with pytest.raises(Failed, match="put it under Watch"):
            python("print('no')", 0, "hover")
        (own, *_) = editor.ask("scopes", frameId=frames[-1]["id"])["scopes"]
        variables = {one["name"]: one["value"] for one in editor.ask("variables", variablesReference=own["variablesReference"])["variables"]}  # fmt: skip
        assert own["name"] == "Locals"
        assert variables["step"] == "0"
        assert "torch" not in variables

        info = editor.ask("dataBreakpointInfo", name="second:out", variablesReference=scopes["Outputs"])
        assert info["dataId"] == "second:out"
        (data,) = editor.ask("setDataBreakpoints", breakpoints=[{"dataId": "second:out", "condition": "count == 24 and step >= 1"}])["breakpoints"]  # fmt: skip
        assert data["verified"]
        editor.ask("setFunctionBreakpoints", breakpoints=[])

        stopped = editor.goes("continue")
        assert (stopped["reason"], stopped["hitBreakpointIds"]) == ("breakpoint", [at_line["id"]])
        assert editor.ask("stackTrace", threadId=1)["stackFrames"][-2]["line"] == line("FORWARD")
        editor.ask("setBreakpoints", source={"path": path}, breakpoints=[])
        stopped = editor.goes("continue")
        assert (stopped["reason"], stopped["hitBreakpointIds"]) == ("data breakpoint", [data["id"]])
        assert "count == 24" in editor.ask("exceptionInfo", threadId=1)["description"]
        editor.ask("setDataBreakpoints", breakpoints=[])

        stopped = editor.goes("continue")  # step 3 divides by 0
        assert stopped["reason"] == "data breakpoint"
        assert "inf" in stopped["text"]
        editor.ask("setExceptionBreakpoints", filters=[])
        here = editor.now
        editor.ask("continue", threadId=1)
        editor.event("terminated", here)
        assert editor.event("exited", here)["exitCode"] == 0
        assert any("done 4" in one["body"]["output"] for one in editor.timeline if one.get("event") == "output")
        editor.ask("disconnect")


def test_steps_go_by_op_by_module_and_by_step(folder: Path) -> None:
    with over_tcp(folder) as editor:
        begin(editor, folder, stopOnEntry=True)
        editor.ask("setExceptionBreakpoints", filters=[])
        here = editor.now
        editor.ask("configurationDone")
        assert editor.event("stopped", here)["reason"] == "entry"
        assert "first:out" in editor.goes("next")["text"]
        assert "relu" in editor.goes("stepIn")["text"]
        assert editor.goes("stepOut")["reason"] == "step"
        here = editor.now
        editor.ask("continue", threadId=1)
        editor.event("terminated", here)


RANKS = """\
import sys, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(6, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_ranks_are_threads(folder: Path) -> None:
    (folder / "ranks.py").write_text(RANKS)
    torchrun = ["torchrun", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    with over_stdio(folder) as editor:
        editor.ask("initialize")
        editor.ask("launch", program="ranks.py", cwd=str(folder), launcher=torchrun, ranks=2, stopOnEntry=True)
        here = editor.now
        editor.ask("configurationDone")
        for thread in (1, 2):
            assert editor.event("stopped", here, threadId=thread)["reason"] == "entry"
        assert [one["name"] for one in editor.ask("threads")["threads"]] == ["rank 0", "rank 1"]
        here = editor.now
        editor.ask("stepOut", threadId=1)
        for thread in (1, 2):
            assert editor.event("stopped", here, threadId=thread)["reason"] == "step"
        (frame, *_) = editor.ask("stackTrace", threadId=2)["stackFrames"]
        assert "scopes" in editor.ask("scopes", frameId=frame["id"])
        here = editor.now
        editor.ask("continue", threadId=2)
        editor.event("exited", here, exitCode=0)


def test_a_stop_that_came_before_anybody_listened_is_told_once() -> None:
    """Ranks are followed in a thread of its own, which may be late: its first message is the state."""
    sink = io.BytesIO()
    session = DebugSession(Wire(io.BytesIO(), sink))
    session._debuggee.run = {"id": "a", "ranks": [{"name": "rank1", "rank": 1, "connected": True, "stop": None}]}
    session._configuration_done({})
    stop = {"reason": "step", "step": 1, "site": None, "hits": [], "breakpoint": None, "number": 7}
    for number in (7, 7, 6, 9):
        session._heard(
            {"type": "state", "rank": "rank1", "state": {"state": "stopped", "stop": {**stop, "number": number}}}
        )
        session._heard({"type": "stop", "rank": "rank1", "stop": {**stop, "number": number}})
    said = sink.getvalue().replace(b" ", b"")
    assert said.count(b'"event":"stopped"') == said.count(b'"threadId":2') == 2


def test_what_cannot_be_is_refused_in_the_protocol(folder: Path) -> None:
    with over_stdio(folder) as editor:
        editor.ask("initialize")
        with pytest.raises(Failed, match="needs `program`"):
            editor.ask("launch")
        with pytest.raises(Failed, match="there is no program"):
            editor.ask("launch", program="gone.py", cwd=str(folder))
        with pytest.raises(Failed, match="does not know"):
            editor.ask("flyAway")
        with pytest.raises(Failed, match="pause it first"):
            editor.ask("stackTrace", threadId=1)
        with pytest.raises(Failed, match="cannot be answered"):
            editor.ask("stackTrace", nothing=1)


def test_an_attached_training_goes_on_when_the_editor_leaves(tmp_path: Path, foundry: Foundry) -> None:
    skip_if_quick()
    with hub(tmp_path) as made, training(foundry, tmp_path, made.address.link) as trained:
        with made.client.live((trained.id, "rank0")) as live:
            while live.receive(60)["type"] not in ("digests", "scalars"):
                continue
        with over_stdio(tmp_path) as editor:
            editor.ask("initialize")
            with pytest.raises(Failed, match="no such training"):
                editor.ask("attach", url=made.address.link, run="gone")
            editor.ask("attach", url=made.address.link)
            editor.event("initialized")
            editor.ask("configurationDone")
            here = editor.now
            editor.ask("pause", threadId=1)
            assert editor.event("stopped", here)["reason"] == "pause"
            (wrong, right) = editor.ask("setFunctionBreakpoints", breakpoints=[{"name": "0:out", "condition": "nrm > 3"}, {"name": "2"}])["breakpoints"]  # fmt: skip
            assert not wrong["verified"]
            assert "nrm" in wrong["message"]
            assert editor.goes("continue")["hitBreakpointIds"] == [right["id"]]
            here = editor.now
            made.client.post(f"/runs/{trained.id}/control", {"action": "continue"})  # another client, who is first
            editor.event("stopped", here)
            editor.ask("disconnect")
        place = made.client.place(trained.id, "rank0")
        assert place.get("breakpoints") == []
        assert place.state()["state"] == "running"
        trained.finish()
        assert trained.end().code == 0
