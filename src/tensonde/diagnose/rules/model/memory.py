"""Memory that grows with the training, and memory that was thought to be a copy."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding


@rule("graph-kept-alive", severity="error", phase="forward")
def kept_graphs(case: Case) -> list[Finding]:
    """Autograd graphs pile up: of forward passes that no backward pass ever uses (an evaluation with gradients whose
    results are summed or collected), of steps long past, or of losses whose backward pass has run, as in a running
    sum that restarts with each epoch. Graphs that a later backward pass uses (an episode), or of several passes over
    one batch of a loader, are not reported.
    """
    graphs = case.facts.graphs
    wasted = graphs.wasted_peak
    old = graphs.old
    growing = len(old) >= 3 and old[-1][1] >= 8 and old[-1][1] >= 0.5 * max(1, old[-1][0] - 2)
    spent = graphs.spent_peak
    if (max(wasted, spent) < 8 and not growing) or not graphs.line:
        return []  # nobody of the user's own holds them
    holder = graphs.holder
    what = f" in {holder.name}" if holder else ""
    count = wasted if wasted >= 8 else max(seen for _, seen in old)
    return [
        case.finding(
            f"{count} autograd graphs are kept alive{what}: memory grows with every batch",
            "Add .item() or .detach() to what is summed or collected, and evaluate under torch.no_grad().",
            step=None,
            source=graphs.line,
            evidence={
                "graphs_never_used": wasted,
                "graphs_of_past_steps": old[-1][1] if old else 0,
                "held_by": holder.name if holder else None,
                **_memory(graphs.rss),
            },
            confidence=0.92,
        )
    ]


def _memory(rss: list[list[int]]) -> dict[str, int]:
    """How the memory of the process grew from the tenth step on, when a training has what it needs."""
    settled = [(step, megabytes) for step, megabytes in rss if step >= 10 and megabytes]
    if len(settled) < 2:
        return {}
    return {f"memory_mb_at_step_{step}": megabytes for step, megabytes in (settled[0], settled[-1])}


@rule("state-loaded-into-itself", severity="error", phase="optimizer")
def loaded_itself(case: Case) -> list[Finding]:
    """A state is loaded into the very module that it belongs to, which changes nothing. `state_dict()` returns the
    module's own tensors, not copies: a "best" state kept without a copy is always the latest one, and a target
    network loaded from itself keeps its initial weights.
    """
    return [
        case.finding(
            (
                f"The state that is loaded into {loaded.type} holds its own tensors: nothing is restored"
                if loaded.kept
                else f"{loaded.type} is loaded from itself: nothing changes"
            ),
            (
                "Keep a copy: copy.deepcopy(model.state_dict()), or clone() each tensor."
                if loaded.kept
                else "Load the state of the other model."
            ),
            step=None,
            source=loaded.kept or loaded.line,
            evidence={"times": loaded.count, "loaded_at": loaded.line.line if loaded.line else None},
            confidence=0.95,
        )
        for loaded in case.facts.loaded_itself
        if case.steps and not any(loaded.line == known.loaded_at for known in case.facts.loads_filtered)
    ][:1]
