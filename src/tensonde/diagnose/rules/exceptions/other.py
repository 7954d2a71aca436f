"""The exception that ended a training, where no family of `rules/exceptions/` knows its cause."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.exceptions import Cause, Event, exception_finding, explanation, family, message, raised
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding


@family("optimizer-step-failed")
def optimizer_step(event: Event) -> Cause | None:
    """The step of an optimizer raises at one parameter, which its frames still hold, and no other family knows why: the
    finding names the parameter, and has its gradient and its state as evidence."""
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
    """The training ended with an exception: of which class (user code, forward op, backward op, optimizer, data
    loading), at which op and module, at which line of the user's, on tensors of which shapes and dtypes. A family of
    exceptions that names the cause puts its finding before this one."""
    event = raised(case)
    if event is None or explanation(event) is not None:
        return []
    return [exception_finding(case, event)]
