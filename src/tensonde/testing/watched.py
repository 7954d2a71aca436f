"""The training of one test."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Literal

from rich.console import Console

from tensonde.cli.show.outcome import finish, show_finding
from tensonde.diagnose.diagnose import diagnose
from tensonde.errors import UsageError
from tensonde.launch.part import Part
from tensonde.model.finding import Finding
from tensonde.session.options import Options, parse_budget
from tensonde.store.claim import create_run
from tensonde.store.reader import Recording
from tensonde.watch.parse import watchpoint

EXPERIMENTS = 10.0
"""Seconds of processor time."""
_MOST = 3


class Watched:
    """Raises UsageError for what a mark cannot mean."""

    def __init__(
        self, folder: Path, test: str, watch: tuple[str, ...] = (), *,
        fail_on: Literal["error", "warning"] = "error", experiments: bool = False, budget: str = "off",
    ) -> None:  # fmt: skip
        if fail_on not in ("error", "warning"):
            raise UsageError(f"fail_on is {fail_on!r}; it may be 'error' or 'warning'.")
        points = []
        for text in watch:
            watchpoint(text, id=1)
            sites, _, condition = text.partition(" ")
            points.append((sites, condition, "report"))
        self._bad = ("error",) if fail_on == "error" else ("error", "warning")
        self._watches = tuple(points)
        run = create_run(folder, "run", {"script": test, "argv": []})
        self._part = Part(
            Options(
                run=str(run), budget=parse_budget(budget), quiet=True, watches=self._watches,  # type: ignore[arg-type]
                experiments=EXPERIMENTS if experiments else 0.0,
            )
        )  # fmt: skip

    @property
    def recording(self) -> Path:
        """For `tensonde show` and `tensonde ui`."""
        return self._part.folder

    def begin(self) -> None:
        """Under `tensonde run pytest` the whole program is watched, and a test not by itself."""
        with contextlib.suppress(UsageError):
            self._part.begin()

    def findings(self) -> list[Finding]:
        """What is known of the training so far; at the end of the test, all of it."""
        if self._part.opened is not None:
            self._part.opened.training.bring_up_to_date()
        recording = Recording.open(self.recording)
        return diagnose(recording) if recording.ranks else []

    def end(self, problem: BaseException | None) -> str:
        """What is wrong with the training, in words; "" where nothing is that the test minds, or nothing trained."""
        self._part.end(problem)
        if self._part.opened is None:
            return ""
        finish(self.recording, 0 if problem is None else 1, quiet=True)
        findings = self.findings()
        bad = [finding for finding in findings if finding.severity in self._bad and finding.caused_by is None]
        hits = self._hits()
        if not bad and not hits:
            return ""
        return self._text(bad, hits)

    def _hits(self) -> list[str]:
        """Of the test's own watchpoints, which are numbered first."""
        hits = Recording.open(self.recording).ranks[0].hits
        return [
            f"{hit.site} {hit.condition} at step {hit.moment.step}"
            for hit in hits
            if hit.watchpoint <= len(self._watches)
        ]

    def _text(self, findings: list[Finding], hits: list[str]) -> str:
        out = io.StringIO()
        console = Console(file=out, width=120, force_terminal=False, force_jupyter=False, highlight=False)
        for finding in findings[:_MOST]:
            show_finding(console, finding)
        for hit in hits[:_MOST]:
            console.print(f"hit: {hit}", markup=False)
        more = len(findings) + len(hits) - min(_MOST, len(findings)) - min(_MOST, len(hits))
        if more:
            console.print(f"and {more} more", markup=False)
        console.print(f"recording: {self.recording}", markup=False, soft_wrap=True)
        return out.getvalue()
