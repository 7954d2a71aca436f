"""The exception that ended a training, where no family of `rules/exception_*.py` knows its cause."""

from __future__ import annotations

from tensonde.diagnose.exceptions import exception_finding, explanation, raised
from tensonde.diagnose.rule import Case, rule
from tensonde.model.finding import Finding


@rule("exception")
def exception_findings(case: Case) -> list[Finding]:
    """The training ended with an exception: of which class (user code, forward op, backward op, optimizer, data
    loading), at which op and module, at which line of the user's, on tensors of which shapes and dtypes. A family of
    exceptions that names the cause puts its finding before this one."""
    event = raised(case)
    if event is None or explanation(event) is not None:
        return []
    return [exception_finding(case, event)]
