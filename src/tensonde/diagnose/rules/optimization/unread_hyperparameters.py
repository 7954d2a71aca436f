"""Hyperparameters that are set where no step reads them."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding


@rule("hyperparameter-set-to-no-effect", severity="error", phase="optimizer")
def no_effect(case: Case) -> list[Finding]:
    """The program changes a hyperparameter in `optimizer.defaults`, as an attribute of the optimizer (`optimizer.lr`), or under another name in its
    groups (`group["learning_rate"]`), after the optimizer was made, and all groups still have the value that they were made with. A step
    reads the groups; defaults are only looked at when a group is added, and the others by nobody: the change has no effect.

    Silent when a group was added since, when the groups were changed as well, and when they have the new value."""
    found = []
    for optimizer in case.stepping:
        unread = optimizer.unread
        if not unread:
            continue
        name = unread.name
        entry = unread.where.removeprefix("group ")
        spelled = {"defaults": f"optimizer.defaults[{name!r}]", "attribute": f"optimizer.{name}"}.get(
            unread.where, f"group[{entry!r}]"
        )
        used = sorted(set(unread.used))
        found.append(
            case.finding(
                (
                    f"{spelled} was set to {unread.value:g} after {optimizer.type} was made: its groups keep {name} "
                    f"{', '.join(f'{value:g}' for value in used)}"
                ),
                f"Set it in the groups: for group in optimizer.param_groups: group[{name!r}] = ...",
                step=None,
                source=unread.line,
                evidence={"set_to": unread.value, "used": used, "where": unread.where, "name": name},
                confidence=0.95,
            )
        )
    return found[:1]
