"""Batch norms that are evaluated with statistics of nothing."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import some
from tensonde.model.finding import Finding


@rule("statistics-never-updated", severity="error", phase="forward")
def never_updated(case: Case) -> list[Finding]:
    """A model is evaluated in eval mode with batch norms that still have their initial running mean 0 and variance 1,
    although the model's weights are updated while another one trains: a moving average of the parameters, which
    leaves the buffers out. Its norms then normalize nothing, and it is far worse than the model that it follows.

    A model whose weights do not change (a random target), one that an optimizer trains in eval mode (another rule
    covers it), and averages of models whose batch norms do not train are not reported. The line is the one loop that
    averages parameters.
    """
    found = []
    for norms in case.facts.untouched_norms:
        if norms.trained or not _another_trains(case, norms.root):
            continue
        averaged = norms.made if norms.type == "AveragedModel" else None
        found.append(
            case.finding(
                (
                    f"{norms.root} is evaluated with running statistics that were never updated (mean 0, variance 1): "
                    f"{some(norms.norms, 2)}"
                ),
                (
                    "Call torch.optim.swa_utils.update_bn before the evaluation, or pass use_buffers=True."
                    if averaged
                    else "Copy the buffers as well: for a, b in zip(averaged.buffers(), model.buffers()): a.copy_(b)"
                ),
                step=norms.step,
                site=f"{norms.norms[0]}:out",
                source=averaged or norms.update_line or norms.made or norms.called,
                evidence={
                    "batch_norms": norms.count,
                    "running_mean": 0.0,
                    "running_var": 1.0,
                    "evaluations_looked_at": norms.looks,
                    "evaluated_at": str(norms.called or ""),
                    "weights_changed_between": norms.changes,
                },
                confidence=0.93,
            )
        )
    return found[:2]


def _another_trains(case: Case, name: str) -> bool:
    """Another model is trained with batch norms in train mode."""
    for other, root in case.facts.roots.items():
        norms = [path for path, kind in root.sensitive.items() if "BatchNorm" in kind]
        if other != name and root.trained["train"] and any(path not in root.partial for path in norms):
            return True
    return False
