"""Hyperparameters that are set where no step reads them."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding


@rule("hyperparameter-set-to-no-effect", severity="error", phase="optimizer")
def no_effect(case: Case) -> list[Finding]:
    """After the optimizer was made, the program changes a hyperparameter in `optimizer.defaults`, as an attribute of
    the optimizer (`optimizer.lr`), or under a wrong name in its groups (`group["learning_rate"]`), and all groups
    still have their original value. A step reads the groups. Defaults are read only when a group is added, and nobody
    reads the others: the change has no effect.

    Silent if a group was added since, if the groups were changed as well, or if they have the new value.
    """
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
                    f"{spelled} was set to {unread.value:g} after {optimizer.type} was made, but its groups keep {name} "
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
