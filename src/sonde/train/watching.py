"""WatchMonitor: what Sonde sees, from inside the training: hits as they come, findings at the end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sonde.train.callback import Callback

if TYPE_CHECKING:
    from sonde.model.finding import Finding
    from sonde.model.watchpoint import Hit
    from sonde.train.context import RunContext

log = logging.getLogger("sonde.train")


class WatchMonitor(Callback):
    """Begins a recording where `sonde run` has not, adds the given watchpoints (`"SITE CONDITION"`), and collects
    `hits` while the training runs and `findings` at its end.

    `stop` ends the training at the first hit of one of these watchpoints, or, without any, of the recommended ones.
    Hits are known at the end of a step that has NaN or Inf, otherwise up to half a second later.
    """

    def __init__(self, *watchpoints: str, stop: bool = False) -> None:
        from sonde.watch.parse import watchpoint

        for text in watchpoints:
            watchpoint(text, id=1)
        self.watchpoints, self.stop = watchpoints, stop
        self.hits: list[Hit] = []
        self.findings: list[Finding] = []
        self._ids: set[int] = set()
        self._taken = 0

    def on_train_begin(self, run_context: RunContext) -> None:
        from sonde.api import attach, current

        arguments = run_context.original_args()
        attach(*(thing for thing in (arguments.train_network, arguments.optimizer) if thing is not None))
        eager = current()
        if eager is not None:
            for text in self.watchpoints:
                sites, _, condition = text.partition(" ")
                self._ids.add(eager.session.watch(sites, condition, "report").id)
            self._taken = eager.session.hit_count

    def on_train_step_end(self, run_context: RunContext) -> None:
        from sonde.api import current

        eager = current()
        if eager is None or eager.session.hit_count == self._taken:
            return
        if self._take(eager.session) and self.stop:
            run_context.request_stop()

    def on_train_end(self, run_context: RunContext) -> None:
        from sonde.api import current
        from sonde.diagnose.diagnose import diagnose
        from sonde.store.reader import Recording

        eager = current()
        if eager is None:
            return
        eager.session.flush()
        eager.facts.write()
        self._take(eager.session)
        self.findings = diagnose(Recording.open(eager.session.writer.folder.parent))
        for finding in self.findings:
            if finding.severity != "info":
                log.warning("%s: %s", finding.severity, finding.title)

    def on_eval_begin(self, run_context: RunContext) -> None:
        """Watchpoints watch trainings."""

    def _take(self, session: Any) -> bool:
        """Whether one of the hits since the last time is ours."""
        new = min(session.hit_count - self._taken, len(session.hits))
        hits = list(session.hits)[len(session.hits) - new :]
        self._taken = session.hit_count
        self.hits += hits
        return any(not self._ids or hit.watchpoint in self._ids for hit in hits)
