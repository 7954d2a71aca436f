"""The exception that ended a training, where no family of `rules/exceptions/` knows its cause."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.exceptions import Cause, Event, exception_finding, explanation, family, message, raised
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding


@family("optimizer-step-failed")
def optimizer_step(event: Event) -> Cause | None:
    """The step of an optimizer raises at one parameter, which its frames still hold, and no other family knows the
    cause. The finding names the parameter; its gradient and state are the evidence.
    """
    found = event.get("stepping")
    if not found:
        return None
    return Cause(
        title=f"{found['type']}.step() fails at {found['parameter'] or 'a parameter'}: {message(event).splitlines()[0][:120]}",
        advice="Compare parameter, gradient and state, given in the evidence: shape, dtype and device must fit.",
        confidence=0.7,
    )


@rule("exception", severity="error", unless=("rank-failed-early",))
def exception_findings(case: Case) -> list[Finding]:
    """The training ended with an exception. The finding gives its class (user code, forward op, backward op,
    optimizer, data loading), the op and module, the line of your program, and the shapes and dtypes of the tensors.
    If a family of exceptions names the cause, its finding comes before this one.
    """
    event = raised(case)
    if event is None or explanation(event) is not None:
        return []
    return [exception_finding(case, event)]
