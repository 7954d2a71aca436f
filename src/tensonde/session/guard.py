"""Tensonde's failures stay Tensonde's: an exception of our own is reported once and the training goes on.

Hot paths write `try: ... except Exception as problem: guard.contain("where", problem)`, which costs
nothing while nothing fails.
`TENSONDE_STRICT=1` re-raises, for our own tests.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections import Counter
from collections.abc import Callable

log = logging.getLogger("tensonde.session")


class Guard:
    """`report` receives (kind, fields) for the recording; it may fail, too. Any thread may call `contain`."""

    def __init__(self, report: Callable[..., None] | None = None) -> None:
        self.report = report
        self.failures: Counter[str] = Counter()
        self._told: set[str] = set()

    def contain(self, where: str, problem: BaseException) -> None:
        """Notes the failure: a line for each cause, a count for each place."""
        if os.environ.get("TENSONDE_STRICT") == "1":
            raise problem
        self.failures[where] += 1
        if self.failures[where] == 1:
            what = f"{type(problem).__name__}: {problem}"
            cause = f"{type(problem).__name__} {problem.errno}" if isinstance(problem, OSError) else what
            if cause not in self._told:  # one cause, one line, in how many places it may show
                self._told.add(cause)
                log.warning(
                    "Tensonde failed in %s (%s); the training goes on without it. Please report this.", where, what
                )
            log.debug("%s", "".join(traceback.format_exception(problem)))
            if self.report is not None:
                try:
                    self.report(
                        "tensonde_failure",
                        where=where,
                        error=what,
                        traceback=traceback.format_exception(problem)[-6:],
                    )
                except Exception as second:
                    log.debug("the failure could not be recorded either: %s", second)
