"""What compiling a model did to it: results that are not those of the graph that was compiled."""

from __future__ import annotations

from typing import Any

from sonde.diagnose.rule import Case, rule
from sonde.model.finding import Finding
from sonde.model.site import SourceLine


@rule("compiled-result-differs")
def departures(case: Case) -> list[Finding]:
    """The first call of every compiled graph (and every call in steps of --verify-steps, and whatever `verify` in the debugger is
    asked for) is also made node by node, and both results are compared. Where they part by
    far more than rounding explains (1 % of the norm in float32), the compiler is wrong about the named node: the graph was
    compiled up to each node in turn, and this is the first one that departs. Results are what the graph returns, what it keeps for
    the backward pass and what it writes to its inputs, such as buffers. A backend that rewrites the graph of forward and backward
    together before it compiles (inductor) is held against the graph as it was before that, too. The training then learns on other values than
    the program says. Compilers reorder sums and use other approximations; that stays orders of magnitude below.
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
    return Finding(
        rule="compiled-result-differs",
        severity="error",
        title=f"torch.compile ({backend}) computes {op}{where} wrongly: its result is not that of the same graph run uncompiled",
        step=int(event.get("step") or 0),
        phase="backward" if event.get("backward") else "forward",
        rank=case.rank.rank,
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
        advice=f"Up to this node the graph gives the same compiled and uncompiled: it is {backend}, not the model. "
        f"Write {f'{line.code!r}' if line else 'the operation'} in another way (without changing a tensor in place that is still "
        "read), or keep it out of the compiled region with torch.compiler.disable; backend='aot_eager' shows whether it helps. "
        "Please report it to PyTorch.",
        confidence=0.95 if event.get("exact") else 0.8,
    )
