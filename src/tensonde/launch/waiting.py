"""Looks at the ranks of a run while it runs, says when they wait for each other in vain, and asks conditions that compare them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from tensonde.errors import TensondeError
from tensonde.launch.rank_conditions import RankConditions
from tensonde.model.watchpoint import Action
from tensonde.store.meetings import in_vain, read_meetings

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
        self._say(in_vain(read_meetings(self._run), now=time.time()))
        if not list(self._run.glob("rank*")):
            return
        from tensonde.store.reader import Recording
        from tensonde.store.standing import standings_of, stuck, waits_for_absent

        recording = Recording.open(self._run)
        if self._conditions.active:
            self._conditions.look(recording, last=last)
        ranks = recording.ranks
        standings = standings_of(ranks)
        found = stuck(standings)
        self._say(found.sentence() if found is not None else waits_for_absent(standings, ranks))

    def _say(self, sentence: str | None) -> None:
        if sentence is not None and sentence not in self._said:
            self._said.add(sentence)
            print(f"tensonde: {sentence}", file=sys.stderr, flush=True)
