"""Findings as the output of a cell."""

from __future__ import annotations

import io
from dataclasses import replace
from html import escape

from rich.console import Console

from tensonde.cli.show.outcome import grouped, show_finding
from tensonde.model.finding import Finding
from tensonde.notebook.cells import Cells
from tensonde.page.notebook import View, view
from tensonde.program.excerpt import excerpt
from tensonde.store.reader import Recording

_COLOURS = {"error": "#c62828", "warning": "#b26a00", "info": "#1565c0"}


class Findings:
    """`findings` are the findings, the most likely cause first; `view()` is the whole report."""

    def __init__(self, recording: Recording, findings: list[Finding], cells: Cells) -> None:
        self.findings, self._cells = findings, cells
        self.recording = recording.path
        self._steps = max((int(rank.session.get("steps") or 0) for rank in recording.ranks), default=0)

    def view(self, height: int = 640) -> View:
        return view(self.recording, height=height)

    def __repr__(self) -> str:
        out = io.StringIO()
        console = Console(file=out, width=120, force_terminal=False, force_jupyter=False, highlight=False)
        console.print(self._head(), markup=False)
        for finding, depth in grouped(self.findings):
            source = finding.source
            shown = finding if source is None else replace(finding, source=None)
            show_finding(console, shown, indent=2 * depth)
            if source is not None:
                console.print(f"    {self._cells.place(source)}: {source.code}", markup=False)
        return out.getvalue().rstrip()

    def _repr_html_(self) -> str:
        parts = [f"<div style='font-size:90%;opacity:.8'>{escape(self._head())}</div>"]
        parts += [self._html(finding, depth) for finding, depth in grouped(self.findings)]
        return "".join(parts)

    def _head(self) -> str:
        said = "no problem found" if not self.findings else f"{len(self.findings)} findings"
        return f"tensonde: {self._steps} steps watched, {said}; recording {self.recording}"

    def _html(self, finding: Finding, depth: int) -> str:
        colour = _COLOURS[finding.severity]
        step = f" <span style='opacity:.7'>(step {finding.step})</span>" if finding.step is not None else ""
        lines = [f"<b style='color:{colour}'>{finding.severity}</b> <b>{escape(finding.title)}</b>{step}"]
        if finding.source is not None:
            lines.append(f"<div style='opacity:.8'>{escape(self._cells.place(finding.source))}</div>{_code(finding)}")
        lines.append(f"<div>{escape(finding.advice)}</div>")
        style = f"margin:6px 0 6px {24 * depth}px;padding:2px 10px;border-left:3px solid {colour}"
        return f"<div style='{style}'>{''.join(lines)}</div>"


def _code(finding: Finding) -> str:
    assert finding.source is not None
    lines = excerpt(finding.source) or [(finding.source.line, finding.source.code, True)]
    shown = "\n".join(f"{'→' if marked else ' '} {number:>4} │ {escape(text)}" for number, text, marked in lines)
    return f"<pre style='margin:2px 0'>{shown}</pre>"
