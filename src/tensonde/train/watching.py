"""WatchMonitor: what Tensonde sees, from inside the training: hits as they come, findings at the end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tensonde.train.callback import Callback

if TYPE_CHECKING:
    from tensonde.model.finding import Finding
    from tensonde.model.watchpoint import Hit
    from tensonde.train.context import RunContext

log = logging.getLogger("tensonde.train")


class WatchMonitor(Callback):
    """Begins a recording where `tensonde run` has not, adds the given watchpoints (`"SITE CONDITION"`), and collects
    `hits` while the training runs and `findings` at its end.

    `stop` ends the training at the first hit of one of these watchpoints, or, without any, of the recommended ones.
    Hits are known at the end of a step that has NaN or Inf, otherwise up to half a second later.
    """

    def __init__(self, *watchpoints: str, stop: bool = False) -> None:
        from tensonde.watch.parse import watchpoint

        for text in watchpoints:
            watchpoint(text, id=1)
        self.watchpoints, self.stop = watchpoints, stop
        self.hits: list[Hit] = []
        self.findings: list[Finding] = []
        self._ids: set[int] = set()
        self._taken = 0

    def on_train_begin(self, run_context: RunContext) -> None:
        from tensonde.api import attach, current

        arguments = run_context.original_args()
        attach(*(thing for thing in (arguments.train_network, arguments.optimizer) if thing is not None))
        training = current()
        if training is not None:
            for text in self.watchpoints:
                sites, _, condition = text.partition(" ")
                self._ids.add(training.session.watch(sites, condition, "report").id)
            self._taken = training.session.hit_count

    def on_train_step_end(self, run_context: RunContext) -> None:
        from tensonde.api import current

        training = current()
        if training is None or training.session.hit_count == self._taken:
            return
        if self._take(training.session) and self.stop:
            run_context.request_stop()

    def on_train_end(self, run_context: RunContext) -> None:
        from tensonde.api import current
        from tensonde.diagnose.diagnose import diagnose
        from tensonde.store.reader import Recording

        training = current()
        if training is None:
            return
        training.bring_up_to_date()
        self._take(training.session)
        self.findings = diagnose(Recording.open(training.session.writer.folder.parent))
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
