"""Tensonde's failures stay Tensonde's: an exception of our own is reported once, in one line, and the training goes on.

The whole traceback goes to `failures.log` beside the recording; the summary says that coverage was lost. Hot paths write `try: ... except Exception as problem: guard.contain("where", problem)`, which costs
nothing while nothing fails.
`TENSONDE_STRICT=1` re-raises, for our own tests.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

LONGEST = 160
"""Characters of a message that are shown; torch's messages may be a page long."""
log = logging.getLogger("tensonde.session")


class Guard:
    """`report` receives (kind, fields) for the recording; it may fail, too. Any thread may call `contain`."""

    def __init__(self, report: Callable[..., None] | None = None, details: Path | None = None) -> None:
        self.report, self.details = report, details
        self.failures: Counter[str] = Counter()
        self._told: set[str] = set()

    def contain(self, where: str, problem: BaseException) -> None:
        """Notes the failure: a line for each cause, a count for each place."""
        if os.environ.get("TENSONDE_STRICT") == "1":
            raise problem
        self.failures[where] += 1
        if self.failures[where] == 1:
            what = f"{type(problem).__name__}: {_first_line(problem)}"
            cause = f"{type(problem).__name__} {problem.errno}" if isinstance(problem, OSError) else what
            if cause not in self._told:  # one cause, one line, in how many places it may show
                self._told.add(cause)
                log.warning(
                    "Tensonde failed in %s (%s); the training goes on without it. Please report this.", where, what
                )
            whole = "".join(traceback.format_exception(problem))
            log.debug("%s", whole)
            try:
                if self.report is not None:
                    self.report(
                        "tensonde_failure", where=where, error=what, traceback=traceback.format_exception(problem)[-6:]
                    )
                if self.details is not None:
                    with self.details.open("a", encoding="utf-8") as file:
                        file.write(f"in {where}\n{whole}\n")
            except Exception as second:
                log.debug("the failure could not be recorded either: %s", second)


def _first_line(problem: BaseException) -> str:
    lines = str(problem).strip().splitlines()
    first = lines[0] if lines else ""
    return first if len(first) <= LONGEST else first[: LONGEST - 1] + "…"
