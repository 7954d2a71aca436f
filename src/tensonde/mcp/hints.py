"""What to ask next, from what an answer says."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def after_report(run: str, report: Json, *, bundles: bool) -> list[str]:
    """The calls that tell more about the first finding; where there is none, those that look elsewhere."""
    findings = report.get("findings") or []
    if not findings and not report.get("steps"):
        return ["No training was seen: no optimizer stepped before the end. Give it more time, or see its output."]
    if not findings:
        return [
            f"No problem was found. check_script runs experiments on two steps; show_run(run={run!r}) shows every site, the suspicious first.",
            "If it should equal another training: compare_runs.",
        ]
    first = findings[0]
    hints = []
    source = first.get("source")
    if source:
        hints.append(
            f"Change {source['file']}:{source['line']}, then run_script again to see that the finding is gone."
        )
    node = (first.get("site") or "").rpartition(":")[0]
    step = f", step={first['step']}" if first.get("step") is not None else ""
    if "/" in node:
        hints.append(f"What went into the op: node(run={run!r}, name={node!r}{step}).")
    elif first.get("site"):
        hints.append(f"How it came: digests(run={run!r}, site={first['site']!r}).")
    if bundles:
        hints.append(f"The step can be run again, op by op: replay(run={run!r}{step}).")
    return hints


def after_state(run: str, state: Json) -> list[str]:
    """What can be done with a training that is in this state."""
    if state["state"] == "stopped":
        return [
            f"Values at this stop: tensors(run={run!r}), then tensor(run={run!r}, address=...).",
            f"Go on: control(run={run!r}, action='nextop' | 'next' | 'finish' | 'step' | 'continue').",
        ]
    if state["state"] == "running":
        return [f"Stop it: control(run={run!r}, action='pause'), or watch(run={run!r}, ..., action='pause')."]
    return [f"It is over: findings(run={run!r})."]
