"""After a run: diagnosis, report in the recording, and a summary on standard error."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from sonde.diagnose.diagnose import diagnose
from sonde.diagnose.report import report
from sonde.errors import RecordingError
from sonde.model.finding import Finding
from sonde.store.claim import note_exit
from sonde.store.reader import Recording
from sonde.store.writer import write_findings

_COLOURS = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def finish(folder: Path, code: int, *, quiet: bool) -> dict[str, Any]:
    """The report of a run that ended with this exit code."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        recording = Recording.open(folder)
    except RecordingError as problem:
        console.print(f"sonde: {problem}", markup=False)
        return {"exit": {"code": code, "exception": None}, "findings": []}
    findings = diagnose(recording)
    outcome = report(recording, findings, exit_code=code)
    try:
        note_exit(folder, code)
        for rank in recording.ranks:
            write_findings(rank.folder, [finding for finding in findings if finding.rank == rank.rank])
        (folder / "report.json").write_text(json.dumps(outcome, indent=2) + "\n")
    except (OSError, ValueError) as problem:
        console.print(f"sonde: the report could not be kept in the recording: {problem}", markup=False)
    if not quiet:
        show(console, recording, findings, outcome)
    return outcome


def show(console: Console, recording: Recording, findings: list[Finding], outcome: dict[str, Any]) -> None:
    where = os.path.relpath(recording.path)
    if not recording.ranks:
        console.print(
            f"sonde: no training was seen: no module was called and no optimizer stepped. Recording: {where}",
            markup=False,
        )
        return
    session = recording.ranks[0].session
    steps, overhead = session.get("steps"), session.get("overhead") or {}
    line = f"sonde: {steps if steps is not None else '?'} steps watched"
    if overhead.get("steps_measured"):
        budget = overhead.get("budget")
        line += f", overhead {max(0.0, overhead['ratio'] - 1) * 100:.1f} %"
        line += " (budget off)" if budget is None else f" (budget {budget * 100:g} %)"
        levels = overhead.get("levels") or {}
        total = sum(levels.values())
        if total and levels.get("full", 0) < total:
            line += f", every module in {levels.get('full', 0)} of {total} steps"
    coverage = session.get("coverage") or {}
    if coverage.get("modules"):
        line += f", {coverage['modules_watched']}/{coverage['modules']} modules"
    console.print(line, markup=False)
    for name, why in list((coverage.get("not_watched") or {}).items())[:3]:
        console.print(f"sonde: not watched: {name} ({why})", markup=False)
    for problem in recording.problems[:3]:
        console.print(f"sonde: {problem}", markup=False)
    roots = [finding for finding in findings if finding.caused_by is None]
    for finding in roots[:3]:
        show_finding(console, finding)
    folded = len(findings) - min(3, len(roots))
    if folded > 0:
        console.print(f"       and {folded} more that follow or matter less", style="dim")
    if not findings:
        console.print("sonde: no problem found", markup=False)
    console.print(f"sonde: recording {where}  (sonde show {where})", style="dim", markup=False)


def show_finding(console: Console, finding: Finding) -> None:
    head = Text()
    head.append(f"{finding.severity}: ", style=_COLOURS[finding.severity])
    head.append(finding.title, style="bold")
    if finding.step is not None:
        head.append(f"  (step {finding.step}, {finding.phase})")
    console.print(head)
    if finding.source is not None:
        console.print(f"    {finding.source}    {finding.source.code}", style="cyan", markup=False)
    facts = ", ".join(
        f"{name} {value:.6g}" for name, value in finding.evidence.items() if isinstance(value, float | int)
    )
    if facts:
        console.print(f"    {facts}", style="dim", markup=False)
    console.print(f"    {finding.advice}", markup=False)
