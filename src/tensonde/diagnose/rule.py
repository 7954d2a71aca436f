"""What a rule is: a name, its reasoning, and a function from what a process recorded to findings.

A rule looks at facts and digests only, never at names or scripts. It says what it saw (`evidence`), how sure it is
(`confidence`: 0.9 and more only where the facts leave no other reading) and what to do (`advice`). It is silent when in doubt:
a false alarm on a healthy training is as bad as a miss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tensonde.diagnose.case import Case, Header
from tensonde.diagnose.world import World
from tensonde.model.finding import Finding, Severity

Check = Callable[[Case], Iterable[Finding]]
WorldCheck = Callable[[World], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Rule:
    """`name` is what findings carry in `rule`; the docstring of `check` is its reasoning, and its entry in the rules page.

    `severity` and `phase` are those of its findings, unless a finding is given its own. `unless` names rules that say the same
    better: where one of them finds something, this one is not run. `explains` names findings that follow from those of this rule.
    """

    name: str
    check: Check | WorldCheck
    severity: Severity = "error"
    phase: str | None = None
    unless: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()

    @property
    def reasoning(self) -> str:
        return (self.check.__doc__ or "").strip()

    def findings(self, subject: Any) -> list[Finding]:
        """What `check` finds in a case, or in a world, with `case.finding` set to this rule."""
        subject.header = Header(self.name, self.severity, self.phase)
        return list(self.check(subject))


RULES: list[Rule] = []
"""About one process."""
WORLD_RULES: list[Rule] = []
"""About the ranks of one training."""


def named(name: str) -> Rule:
    return next(known for known in RULES if known.name == name)


def rule(
    name: str,
    *,
    severity: Severity,
    phase: str | None = None,
    unless: tuple[str, ...] = (),
    explains: tuple[str, ...] = (),
) -> Callable[[Check], Check]:
    """Registers a rule: `@rule("parameter-not-in-optimizer", severity="error")` over a function of a case."""

    def register(check: Check) -> Check:
        _add(RULES, Rule(name, check, severity, phase, unless, explains))
        return check

    return register


def world_rule(
    name: str, *, severity: Severity, phase: str | None = None, explains: tuple[str, ...] = ()
) -> Callable[[WorldCheck], WorldCheck]:
    """Registers a rule about the ranks of one training, over a function of a world."""

    def register(check: WorldCheck) -> WorldCheck:
        _add(WORLD_RULES, Rule(name, check, severity, phase, (), explains))
        return check

    return register


def _add(rules: list[Rule], new: Rule) -> None:
    if any(known.name == new.name for known in (*RULES, *WORLD_RULES)):
        raise ValueError(f"there are two rules named {new.name}")
    rules.append(new)
