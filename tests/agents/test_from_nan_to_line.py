"""An agent that knows nothing but "it is NaN" goes by a fixed plan, from answer to answer, to the line that is at fault."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from agent_drive import TOKENS, Agent, over_stdio

from tensonde.mcp.answer import CHARACTERS_PER_TOKEN

BUGS = Path(__file__).parent.parent.parent / "corpus" / "bugs"
PLAYED = ["nan_division_by_zero_count", "nan_log_of_zero_probability", "nan_std_of_constant_channel", "nan_where_masks_forward_not_backward", "nan_kl_with_probabilities"]  # fmt: skip


def culprit(agent: Agent, script: str) -> dict[str, Any]:
    """The plan of the prompt `why_nan`: what each call needs stands in an answer before it."""
    plan = agent.prompt("why_nan", script=script)
    assert plan.index("run_script") < plan.index("node")
    ran = _short(agent, "run_script", script=script, steps=30)
    first = ran["answer"]["findings"][0]
    run = ran["run"]
    node = _short(agent, "node", run=run, name=first["site"].rpartition(":")[0], step=first["step"])["answer"]
    assert node["inputs"] or node["parameters"]
    source: dict[str, Any] = first["source"] or node["source"]
    shown = _short(agent, "source", run=run, file=source["file"], line=source["line"], around=2)["answer"]
    assert source["code"] in shown["lines"][source["line"] - shown["first"]]
    return source


def _short(agent: Agent, tool: str, **arguments: Any) -> dict[str, Any]:
    text = agent.text(tool, **arguments)
    assert len(text) <= TOKENS * CHARACTERS_PER_TOKEN
    answer: dict[str, Any] = json.loads(text)
    return answer


@pytest.mark.parametrize(
    "bug", [pytest.param(name, marks=[] if k == 0 else [pytest.mark.slow]) for k, name in enumerate(PLAYED)]
)
def test_the_answers_lead_to_the_line(bug: str, tmp_path: Path) -> None:
    shutil.copy(BUGS / bug / "train.py", tmp_path / "train.py")
    meta = json.loads((BUGS / bug / "meta.json").read_text())
    lines = {meta["culprit"]["line"], *meta["culprit"]["all_defect_lines"]}
    with over_stdio(tmp_path, "--allow-run") as agent:
        found = culprit(agent, "train.py")
    assert found["file"] == "train.py"
    assert found["line"] in lines
