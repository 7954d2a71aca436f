"""What compiling a model did to it: results that are not those of the graph that was compiled."""

from __future__ import annotations

from typing import Any

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding
from tensonde.model.site import SourceLine


@rule("compiled-result-differs", severity="error")
def departures(case: Case) -> list[Finding]:
    """The first call of every compiled graph (and every call in steps of --verify-steps, and whatever `verify` in the
    debugger asks for) also runs node by node, and the two results are compared. If they differ by far more than
    rounding explains (1 % of the norm in float32), the compiler is wrong about the named node: the graph was compiled
    up to each node in turn, and this is the first one that departs. Results are what the graph returns, what it keeps
    for the backward pass and what it writes to its inputs, such as buffers. A backend that rewrites the graph of
    forward and backward together before it compiles (inductor) is also compared with the graph from before that. The
    training then learns from other values than the program says. Compilers reorder sums and use other approximations;
    their effect is orders of magnitude smaller.
    """
    found = [event for event in case.events if event.get("kind") == "compiled_departs"]
    if not found:
        return []
    first = min(found, key=lambda event: (not event.get("exact"), bool(event.get("backward")), event.get("graph", 0)))
    return [_finding(case, first, len({event.get("graph") for event in found}))]


def _finding(case: Case, event: dict[str, Any], count: int) -> Finding:
    source = event.get("source")
    site = str(event.get("site") or event["node"])
    backend = str(event["backend"])
    module = site.partition("/")[0]
    op = site.partition("/")[2].partition("#")[0].partition(":")[0]
    line = SourceLine(**source) if source else None
    where = f" in {module}" if module else ""
    return case.finding(
        f"torch.compile ({backend}) computes {op}{where} wrongly: its result differs from the same graph run uncompiled",
        (
            f"Up to this node the graph gives the same compiled and uncompiled: it is {backend}, not the model. "
            f"Write {f'{line.code!r}' if line else 'the operation'} in another way (without changing a tensor in place that is still "
            "read), or keep it out of the compiled region with torch.compiler.disable; backend='aot_eager' shows whether it helps. "
            "Please report it to PyTorch."
        ),
        step=int(event.get("step") or 0),
        phase="backward" if event.get("backward") else "forward",
        site=site,
        op=op,
        source=line,
        evidence={
            "max_abs_difference": event.get("max_abs"),
            "relative_distance": event.get("distance"),
            "backend": backend,
            "graph": event.get("graph"),
            "node": event.get("node"),
            "graphs_departing": count,
            "found_by": "compiling the graph up to each node"
            if event.get("exact")
            else f"the graph before {backend}'s own passes"
            if event.get("rewritten")
            else "the first result that departs",
        },
        confidence=0.95 if event.get("exact") else 0.8,
    )


@rule("input-overwritten-before-backward", severity="error", phase="backward")
def overwritten(case: Case) -> list[Finding]:
    """A compiled graph keeps one of its inputs for the backward pass, and before the backward pass somebody writes to
    it (a buffer that is filled with the next batch too early): gradients are computed from values that the forward
    pass has not seen. In eager mode this raises an error; compiled code may continue silently. The input's version
    counter shows it.
    """
    found = next((event for event in case.events if event.get("kind") == "compiled_input_overwritten"), None)
    if found is None:
        return []
    name = found.get("variable") or "An input"
    return [
        case.finding(
            f"{name} is changed between forward and backward: the compiled gradient ({found['backend']}) is computed from other values",
            "Change it after backward(), or give the model a copy (clone()).",
            step=int(found["step"]),
            source=SourceLine(**found["place"]) if found.get("place") else None,
            evidence={"variable": found.get("variable"), "shape": found["shape"]},
            confidence=0.95,
        )
    ]


@rule("hook-after-compiling", severity="error", phase="forward")
def late_hooks(case: Case) -> list[Finding]:
    """A forward hook was put on a module after the code that calls it was compiled, and nothing was compiled since:
    the compiled code never calls the hook. Hooks from before the first compiled call, and hooks after which the model
    is compiled again, are not reported.
    """
    compiled = max((event["region"] for event in case.events if event.get("kind") == "graph_compiled"), default=-1)
    late = [
        event
        for event in case.events
        if event.get("kind") == "hook_after_compiling" and compiled < event["regions"] and event["step"] < case.steps
    ]
    return [
        case.finding(
            f"The hook {event['hook']} on {event['module'] or event['type']} is never called: its code was already compiled",
            (
                "Register hooks before the first call of the compiled model, or call torch.compiler.reset() after it "
                "(torch._dynamo.config.skip_nnmodule_hook_guards = False makes torch notice hooks, at a cost)."
            ),
            step=int(event["step"]),
            site=f"{event['module']}:out" if event["module"] else None,
            source=SourceLine(**event["place"]) if event.get("place") else None,
            evidence={
                "hook": event["hook"],
                "registered_by": event["how"],
                "regions_compiled_before": event["regions"],
            },
            confidence=0.9,
        )
        for event in late[:1]
    ]


LIMIT = 8
"""So many versions of one piece of code does torch compile by default, before it gives up and runs it uncompiled."""


@rule("compiled-again-and-again", severity="warning", phase="forward")
def again_and_again(case: Case) -> list[Finding]:
    """The same code was recompiled so often that torch gave up on it (`recompile_limit`, 8 by default). Each time,
    something that it had assumed constant was different, such as a length with `dynamic=False`, or a number that
    counts up. The training stalls while it compiles, and runs uncompiled from then on. A few versions (training and
    evaluation, a smaller last batch) are usual; torch makes a changing size dynamic by itself, unless told not to.
    """
    reasons: dict[str, list[dict[str, Any]]] = {}
    for event in case.events:
        if event.get("kind") == "recompiled":
            reasons.setdefault(str(event.get("reason", "")).partition("/")[0], []).append(event)
    often = [events for events in reasons.values() if len(events) >= LIMIT]
    if not often:
        return []
    events = max(often, key=len)
    last = next((event for event in reversed(events) if event.get("line")), events[-1])
    why = str(events[-1].get("reason", "")).partition(": ")[2]
    made = [m.made for m in case.facts.modules.values() if m.type == "OptimizedModule" and m.made]
    line = SourceLine(str(last["file"]), int(last["line"]), "") if last.get("line") else None
    return [
        case.finding(
            f"{last.get('function') or 'A function'} was compiled {len(events)} times: {why}",
            (
                "A size that changes: torch.compile(..., dynamic=True), or torch._dynamo.mark_dynamic on the input; a "
                "Python number that changes: make it a tensor, or keep it out of the compiled function."
            ),
            step=int(events[-1].get("step") or 0),
            source=made[0] if len(made) == 1 else line,
            evidence={
                "times": len(events),
                "reasons": [str(event.get("reason")) for event in events[-4:]],
                "code": str(line or ""),
            },
            confidence=0.9,
        )
    ]
