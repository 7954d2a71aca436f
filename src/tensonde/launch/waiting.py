"""Looks at the ranks of a run while it runs, says when they wait for each other in vain, and asks conditions that compare them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from tensonde.errors import TensondeError
from tensonde.launch.rank_conditions import RankConditions
from tensonde.model.watchpoint import Action

EVERY = 1.5


class WaitingRanks:
    """A thread of the command's process; the training knows nothing of it. Says each thing once."""

    def __init__(self, run: Path, watches: Iterable[tuple[str, str, Action]] = ()) -> None:
        self._run = run
        self._conditions = RankConditions(run, watches)
        self._over = threading.Event()
        self._said: set[str] = set()
        self._thread = threading.Thread(target=self._watch, name="waiting ranks", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join(EVERY)
        if self._conditions.active and not self._thread.is_alive():
            try:
                self.look(last=True)
            except (TensondeError, OSError, ValueError):
                pass  # nothing was recorded

    def _watch(self) -> None:
        while not self._over.wait(EVERY):
            try:
                self.look()
            except (TensondeError, OSError, ValueError):
                continue  # the recording is just being made

    def look(self, *, last: bool = False) -> None:
        if len(list(self._run.glob("rank*"))) < 2:
            return
        from tensonde.store.reader import Recording
        from tensonde.store.standing import standings_of, stuck

        recording = Recording.open(self._run)
        if self._conditions.active:
            self._conditions.look(recording, last=last)
        found = stuck(standings_of(recording.ranks))
        if found is not None and (sentence := found.sentence()) not in self._said:
            self._said.add(sentence)
            print(f"tensonde: {sentence}", file=sys.stderr, flush=True)
