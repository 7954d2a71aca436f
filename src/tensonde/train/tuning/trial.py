"""One trial: the script as a process of its own under Tensonde, watched while it runs, stopped when it is hopeless."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tensonde.diagnose.diagnose import diagnose
from tensonde.errors import RecordingError
from tensonde.launch.environment import watched_environment
from tensonde.model.reported import ENVIRONMENT
from tensonde.session.options import Options
from tensonde.store.claim import create_run
from tensonde.store.reader import Recording
from tensonde.train.tuning.metric import Metric, worth_telling
from tensonde.train.tuning.settings import Settings
from tensonde.train.tuning.space import words

DIAGNOSE_EVERY = 10.0
HOPELESS = frozenset(
    [
        "divergence",
        "exploding-gradients",
        "nan-in-data",
        "nan-in-optimizer",
        "nan-in-weights",
        "nan-origin",
        "nonfinite",
        "learning-rate-too-large",
        "activation-saturated",
        "units-dead",
        "gradient-all-zero",
        "update-rounds-away",
    ]
)
"""Rules after whose errors a trial need not go on: its numbers are lost. What is wrong with every trial alike, such as a
parameter that is in no optimizer, is reported by `tensonde run`, and does not stop a study.
"""
PATIENCE = 5.0
"""Seconds that a script has to end by itself when it is asked to."""

State = Literal["complete", "pruned", "nonfinite", "broken", "failed"]
"""complete; stopped by the pruner; stopped at NaN or Inf; stopped for an error that Tensonde found; ended by its own."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`finding` is what Tensonde says about a trial that was not completed, with the place in the source."""

    state: State
    value: float | None = None
    finding: str = ""
    seconds: float = 0.0


class Running:
    """A trial that was started; `poll` is to be called now and then, by one thread."""

    def __init__(
        self,
        settings: Settings,
        values: dict[str, Any],
        folder: Path,
        *,
        threads: int | None = None,
        cwd: str | None = None,
    ) -> None:
        self.metric: Metric = settings.metric
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        command, extra = command_of(settings, values)
        run = create_run(folder, "run", {"script": settings.target[0], "argv": command[2:]})
        extra[ENVIRONMENT] = str((folder / "reports.jsonl").absolute())
        if threads is not None and "OMP_NUM_THREADS" not in os.environ:
            extra["OMP_NUM_THREADS"] = str(threads)
        environment = watched_environment(Options(run=str(run.absolute()), quiet=True), extra)
        with open(folder / "output.txt", "wb") as output:
            self.process = subprocess.Popen(
                command,
                env=environment,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self.began = self._diagnosed = time.monotonic()
        self._told = -1
        self.latest: tuple[int, float] | None = None
        """Step and value of the metric, as far as is known."""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def new_values(self) -> list[tuple[int, float]]:
        """Since the last time, smoothed as the metric is, at the steps at which trials are compared."""
        values = self.metric.values(self.folder)
        self.latest = values[-1] if values else None
        told, found = self._told, []
        for place, (step, value) in enumerate(values):
            if step > told and (worth_telling(step) or not math.isfinite(value)):
                smooth = self.metric.reduced([v for _, v in values[max(0, place - 99) : place + 1]])
                found.append((step, value if smooth is None or not math.isfinite(value) else smooth))
                self._told = step
        return found

    def poll(self) -> Outcome | None:
        """What became of it; None while it runs and nothing is wrong with it."""
        code = self.process.poll()
        if code is not None:
            return replace(self._ended(code), seconds=self.seconds)
        now = time.monotonic()
        if now - self._diagnosed > DIAGNOSE_EVERY:
            self._diagnosed = now
            finding = self.finding(hopeless=True)
            if finding:
                return self.stop("broken", finding)
        return None

    def tell_to_end(self, number: int = signal.SIGTERM) -> None:
        """The process and its children."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def stop(self, state: State, finding: str = "") -> Outcome:
        """Ends the process and its children."""
        for number, patience in ((signal.SIGTERM, PATIENCE), (signal.SIGKILL, None)):
            self.tell_to_end(number)
            try:
                self.process.wait(patience)
                break
            except subprocess.TimeoutExpired:
                continue
        if state == "nonfinite" and not finding:
            finding = self.finding()
        return Outcome(state, None, finding, self.seconds)

    def finding(self, *, hopeless: bool = False) -> str:
        """The most likely cause, in a line: its title, its step, its place in the source."""
        try:
            findings = diagnose(Recording.open(self.folder / "run"))
        except RecordingError:
            return ""
        for finding in findings:
            lost = finding.severity == "error" and finding.rule in HOPELESS
            if lost or (finding.severity != "info" and not hopeless):
                at = f" (step {finding.step})" if finding.step is not None else ""
                where = f", {finding.source}" if finding.source is not None else ""
                return f"{finding.title}{at}{where}"
        return ""

    def _ended(self, code: int) -> Outcome:
        if code != 0:
            return Outcome("failed", None, self.finding() or self._last_line() or f"it ended with code {code}")
        value = self.metric.final(self.folder)
        if value is None:
            return Outcome("failed", None, f"no value of {self.metric.name!r} was seen in it")
        if not math.isfinite(value):
            return Outcome("nonfinite", None, self.finding() or f"{self.metric.name} is {value}")
        return Outcome("complete", value)

    def _last_line(self) -> str:
        lines = [line for line in (self.folder / "output.txt").read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip()[:200] if lines else ""


def command_of(settings: Settings, values: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command line, and what is added to the environment.

    A parameter goes where `{name}` stands in the script's arguments, or else behind them as `--name VALUE`.
    """
    script, *given = settings.target
    environment: dict[str, str] = {}
    rest: list[str] = []
    for parameter in settings.parameters:
        text, mark = words(values[parameter.name]), f"{{{parameter.name}}}"
        if parameter.environment:
            environment[parameter.name] = text
        elif any(mark in word for word in given):
            given = [word.replace(mark, text) for word in given]
        else:
            rest += [f"--{parameter.name}", text]
    if settings.calls_function:
        return [sys.executable, "-m", "tensonde.train.tuning.called", script, *given, *rest], environment
    return [sys.executable, script, *given, *rest], environment


def _die_with_parent() -> None:
    """A killed `tensonde tune` leaves no trainings behind (Linux: PR_SET_PDEATHSIG)."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    except (OSError, AttributeError):
        pass
