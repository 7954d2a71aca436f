"""After a run: diagnosis, report in the recording, and a summary on standard error."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from tensonde.cli.show.covered import coverage_notes, modules_line, thinned_note
from tensonde.cli.show.screen import error_console
from tensonde.cli.show.untrained import finish_untrained, trained
from tensonde.diagnose.diagnose import diagnose
from tensonde.diagnose.places import places_line
from tensonde.diagnose.report import report
from tensonde.errors import RecordingError
from tensonde.model.finding import Finding
from tensonde.model.overhead import overhead_text
from tensonde.program.excerpt import excerpt
from tensonde.store.bundles import LEAP, bundles_in
from tensonde.store.claim import note_exit
from tensonde.store.reader import Rank, Recording
from tensonde.store.writer import write_findings

_COLOURS = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_MOST_FACTS = 8


def finish(folder: Path, code: int, *, quiet: bool, verbose: bool = False) -> dict[str, Any]:
    """The report of a run that ended with this exit code."""
    if not trained(folder):
        return finish_untrained(folder, code, quiet=quiet)
    console = error_console()
    with contextlib.suppress(OSError, ValueError):
        note_exit(folder, code)
    try:
        recording = Recording.open(folder)
    except RecordingError as problem:
        console.print(f"tensonde: {problem}", markup=False)
        return {"exit": {"code": code, "exception": None}, "findings": []}
    for rank in recording.ranks:
        rank.exit_code = code
    findings = diagnose(recording)
    outcome = report(recording, findings, exit_code=code)
    try:
        for rank in recording.ranks:
            write_findings(rank.folder, findings_of(rank, recording, findings))
        (folder / "report.json").write_text(json.dumps(outcome, indent=2) + "\n")
    except (OSError, ValueError) as problem:
        console.print(f"tensonde: the report could not be kept in the recording: {problem}", markup=False)
    if not quiet:
        show(console, recording, findings, verbose=verbose)
    return outcome


def findings_of(rank: Rank, recording: Recording, findings: list[Finding]) -> list[Finding]:
    """Those that are kept with this process: `caused_by` is an index into them. Of several processes with one rank, the first."""
    if rank is not next(other for other in recording.ranks if other.rank == rank.rank):
        return []
    own = [k for k, finding in enumerate(findings) if finding.rank == rank.rank]
    place = {k: new for new, k in enumerate(own)}
    return [
        f if f.caused_by is None else replace(f, caused_by=place.get(f.caused_by)) for f in (findings[k] for k in own)
    ]


def show(console: Console, recording: Recording, findings: list[Finding], *, verbose: bool = False) -> None:
    where = os.path.relpath(recording.path)
    session = recording.ranks[0].session
    steps, overhead = session.get("steps"), session.get("overhead") or {}
    line = f"tensonde: {steps if steps is not None else '?'} steps watched"
    said = overhead_text(overhead)
    if said:
        line += f", {said}"
    if overhead.get("steps_measured"):
        levels = overhead.get("levels") or {}
        total = sum(levels.values())
        if total and levels.get("full", 0) < total:
            line += f", every module in {levels.get('full', 0)} of {total} steps"
        if levels.get("rest"):
            line += f", {levels['rest']} not looked at"
    modules = modules_line(session.get("coverage") or {})
    if modules:
        line += f", {modules}"
    console.print(line, markup=False)
    for note in filter(None, (*coverage_notes(session), thinned_note(recording.ranks[0].thinned))):
        console.print(f"tensonde: {note}", markup=False)
    for problem in recording.problems[:3]:
        console.print(f"tensonde: {problem}", markup=False)
    for text in endings(recording):
        console.print(f"tensonde: {text}", markup=False)
    show_findings(console, findings, verbose=verbose)
    if not findings:
        console.print("tensonde: no problem found", markup=False)
    saved = [
        bundle for rank in recording.ranks for bundle in bundles_in(rank.folder) if findings or not _leapt(rank, bundle)
    ]
    if saved:
        console.print(
            f"tensonde: step {saved[0].name.removeprefix('step')} is saved; `tensonde replay {where}` runs it again",
            style="dim",
            markup=False,
        )
    console.print(f"tensonde: recording {where}  (tensonde show {where})", style="dim", markup=False)


def _leapt(rank: Rank, bundle: Path) -> bool:
    """It was saved in case the loss, which leapt, tells something."""
    return any(
        event["kind"] == "replayed" and event.get("trigger") == LEAP and f"step{event.get('step')}" == bundle.name
        for event in rank.events
    )


def endings(recording: Recording) -> list[str]:
    """What ended the processes that did not come to their own end, or that the user ended."""
    told: dict[str, list[int]] = {}
    for rank in recording.ranks:
        told.setdefault(ending_line(rank), []).append(rank.rank)
    told.pop("", None)
    if len(recording.ranks) == 1:
        return list(told)
    return [f"rank {', '.join(map(str, ranks))}: {text}" for text, ranks in told.items()]


def ending_line(rank: Rank) -> str:
    """`SIGTERM (terminated) ended the program in step 12, at train.py:20`; "" for a usual end, or where a finding says it."""
    raised = (rank.session.get("exit") or {}).get("exception") or {}
    if raised.get("type") == "KeyboardInterrupt":
        line = raised.get("source")
        at = f", at {line['file']}:{line['line']}" if line else ""
        return f"Ctrl-C ended the program in step {raised.get('step')}{at}"
    ending = rank.ending
    if ending is None or ending.is_crash or ending.signal == "SIGKILL":
        return ""
    parts = [f"{ending.how} ended the program"]
    if ending.step is not None:
        parts.append(f" in step {ending.step}")
    if ending.source is not None:
        at = "after a call" if not ending.stack and not ending.how.startswith("os.") else "at"
        parts.append(f", {at} {ending.source}" if at == "at" else f", {at} of {ending.module} at {ending.source}")
    return "".join(parts)


def show_findings(console: Console, findings: list[Finding], *, verbose: bool = False) -> None:
    """The first one large; the others as a line each, consequences under their cause, the tail folded."""
    if not findings:
        return
    show_finding(console, findings[0])
    rest = grouped(findings)
    rest = [entry for entry in rest if entry[0] is not findings[0]]
    shown = rest if verbose else [entry for entry in rest if entry[1] == 0 and entry[0].severity != "info"][:2]
    for finding, depth in shown:
        if verbose:
            show_finding(console, finding, indent=2 * depth)
        else:
            show_line(console, finding)
    folded = len(rest) - len(shown)
    if folded:
        console.print(
            f"       and {folded} more that {'follows or matters' if folded == 1 else 'follow or matter'} less "
            "(--verbose, or tensonde diagnose, shows all)",
            style="dim",
            markup=False,
        )


def grouped(findings: list[Finding]) -> list[tuple[Finding, int]]:
    """Each cause with what follows from it right after, and how deep it stands under its cause."""
    found: list[tuple[Finding, int]] = []

    def add(index: int, depth: int) -> None:
        if all(entry[0] is not findings[index] for entry in found):
            found.append((findings[index], depth))
            for k, other in enumerate(findings):
                if other.caused_by == index and k != index:
                    add(k, depth + 1)

    for k, finding in enumerate(findings):
        if finding.caused_by is None:
            add(k, 0)
    for k in range(len(findings)):  # whatever a broken reference left out
        add(k, 0)
    return found


def show_finding(console: Console, finding: Finding, *, indent: int = 0) -> None:
    """With an excerpt of the source, where the file is there."""
    margin = " " * indent
    console.print(_head(finding, margin))
    if finding.source is not None:
        lines = excerpt(finding.source)
        console.print(
            f"{margin}    {finding.source}    {finding.source.code if not lines else ''}".rstrip(),
            style="cyan",
            markup=False,
        )
        for number, text, marked in lines:
            mark = "→" if marked else " "
            style = "bold" if marked else "dim"
            console.print(f"{margin}  {mark} {number:>5} │ {text}", style=style, markup=False)
    facts = [f"{name} {_fact(value)}" for name, value in finding.evidence.items() if _short(value)]
    if facts:
        console.print(f"{margin}    {', '.join(facts[:_MOST_FACTS])}", style="dim", markup=False)
    if finding.places:
        console.print(
            f"{margin}    the same {len(finding.places)} times: {places_line(finding)}".rstrip(": "),
            style="dim",
            markup=False,
        )
    console.print(f"{margin}    {finding.advice}", markup=False)


def show_line(console: Console, finding: Finding) -> None:
    """Folded to one line, and the place."""
    console.print(_head(finding, ""))
    if finding.source is not None:
        console.print(f"    {finding.source}    {finding.source.code}", style="cyan", markup=False)


def _head(finding: Finding, margin: str) -> Text:
    head = Text(margin)
    head.append(f"{finding.severity}: ", style=_COLOURS[finding.severity])
    head.append(finding.title, style="bold")
    if finding.places:
        head.append(f"  and {len(finding.places) - 1} more like it")
    if finding.step is not None:
        head.append(f"  (step {finding.step}{f', {finding.phase}' if finding.phase else ''})")
    return head


def _short(value: Any) -> bool:
    """Worth a place on the line: numbers, shapes, short words."""
    if isinstance(value, bool | int | float):
        return True
    return isinstance(value, list | tuple | str) and 0 < len(str(value)) <= 32


def _fact(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)
