"""Hooks that one line registers again and again, and that stay."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding

FEWEST = 8


@rule("hooks-pile-up", severity="error", phase="forward")
def pile_up(case: Case) -> list[Finding]:
    """One line has registered a hook on one module in many steps, and all of them are still there. Each call of the
    module runs them all, and whatever they hold (activations, graphs) stays alive. Memory and time grow with every
    step.

    If a library registers them, this is information: the program cannot change it, and libraries that train well do
    so.

    Hooks that were removed, hooks of modules that are gone, and hooks that one line puts on many modules once are not
    reported.
    """
    found = []
    for hook in case.facts.hooks:
        if hook.steps < FEWEST or hook.alive < hook.steps:
            continue
        whose, advice = (
            "one line",
            "Register the hook once, before the loop; or remove it: call `remove()` on the handle that register returns.",
        )
        if hook.library:
            whose = hook.library
            advice = f"Each call of the module runs all of them. If steps become slower, look for a newer version of {hook.library}."
        found.append(
            case.finding(
                (
                    f"{hook.alive} hooks of {whose} are on {hook.module}: it registers one in every step, and none is "
                    "removed"
                ),
                advice,
                severity="info" if hook.library else None,
                step=hook.first_step,
                site=f"{hook.module}:out",
                source=hook.line,
                evidence={
                    "call": hook.kind,
                    "registered": hook.registered,
                    "still_there": hook.alive,
                    "steps": [hook.first_step, hook.last_step],
                },
                confidence=0.95,
            )
        )
    return found[:2]
