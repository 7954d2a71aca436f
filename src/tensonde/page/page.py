"""The report of a recording as one page: what it was, what went wrong and where, its curves, its hits, its modules."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tensonde.diagnose.diagnose import diagnose
from tensonde.diagnose.places import places_line
from tensonde.model.finding import Finding
from tensonde.model.overhead import overhead_text
from tensonde.model.watchpoint import Hit
from tensonde.page.chart import chart
from tensonde.page.markup import mark, number, table, tag, text
from tensonde.page.style import STYLE
from tensonde.page.tree import module_tree
from tensonde.program.excerpt import excerpt
from tensonde.store.reader import Rank, Recording
from tensonde.version import __version__

HITS = 300
"""Rows of hits in the table; the rest is counted."""
FEW = 3

_LEVEL = {"error": "bad", "warning": "warn", "info": "ok"}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""A browser that is given the page fetches and runs nothing, whatever a recording holds."""


def report(recording: Recording) -> str:
    ranks = recording.ranks
    several = len(ranks) > 1
    live = recording.live
    findings = diagnose(recording) if live else recording.findings  # a run that still goes on has no diagnosis yet
    parts = [_head(recording, findings), _findings(findings, live)]
    for rank in ranks:
        title = f" of {rank.name}" if several else ""
        parts += [
            _charts(rank, title),
            _hits(rank, title),
            tag("h2", text(f"Modules{title}")),
            tag("div", module_tree(rank), class_="tree"),
        ]
    if recording.problems:
        parts += [tag("h2", "Damage"), *(tag("p", text(problem)) for problem in recording.problems)]
    parts.append(tag("footer", text(f"Made by tensonde {__version__} from {recording.path.name}.")))
    return document(recording.name, "".join(parts))


def document(title: str, body: str) -> str:
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        + tag("title", text(f"{title} · Tensonde"))
        + tag("style", STYLE)
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _head(recording: Recording, findings: list[Finding]) -> str:
    first = recording.ranks[0].session if recording.ranks else {}
    overhead = first.get("overhead")
    facts = {
        "script": " ".join(
            map(str, [recording.manifest.get("script") or "?", *(recording.manifest.get("argv") or [])])
        ),
        "state": recording.state,
        "steps": first.get("steps"),
        "ranks": len(recording.ranks),
        "framework": " ".join(str(first[key]) for key in ("framework", "framework_version") if first.get(key)),
        "device": first.get("device"),
        "started": str(recording.manifest.get("started") or "")[:19].replace("T", " "),
        "overhead": overhead_text(overhead).removeprefix("overhead ") if isinstance(overhead, dict) else None,
        "hits": len(recording.hits),
        "findings": len(findings),
    }
    shown = "".join(
        tag("div", tag("dt", text(name)) + tag("dd", text(value)))
        for name, value in facts.items()
        if value not in (None, "")
    )
    return tag("h1", text(recording.name)) + tag("dl", shown, class_="facts")


def _findings(findings: list[Finding], live: bool) -> str:
    if not findings:
        said = "No problem found so far; the run still goes on." if live else "No problem found."
        return tag("h2", "Findings") + tag("p", said, class_="dim")
    return tag("h2", "Findings") + "".join(_finding(finding) for finding in findings)


def _finding(finding: Finding) -> str:
    when = [f"step {finding.step}" if finding.step is not None else "", finding.phase or "", finding.rule]
    head = mark(_LEVEL.get(finding.severity, "ok")) + tag("h3", text(finding.title))
    if finding.caused_by is not None:
        head += tag("span", f"follows from {finding.caused_by + 1}", class_="badge")
    head += tag("span", text(" · ".join(part for part in when if part)), class_="dim")
    body = tag("header", head)
    if finding.places:
        more = f"The same was found {len(finding.places)} times: {places_line(finding)}."
        body += tag("p", text(more), class_="dim")
    elif finding.site:
        body += tag("p", tag("code", text(finding.site)))
    body += tag("p", text(finding.advice))
    if finding.evidence:
        pairs = "".join(
            tag("dt", text(name)) + tag("dd", text(_value(value))) for name, value in finding.evidence.items()
        )
        body += tag("dl", pairs, class_="evidence mono")
    if finding.source is not None:
        lines = excerpt(finding.source, 3) or [(finding.source.line, finding.source.code, True)]
        code = "".join(
            tag("span", f"<i>{line}</i>{text(content) or ' '}", class_="on" if marked else None)
            for line, content, marked in lines
        )
        body += tag("p", text(finding.source), class_="mono dim") + tag("pre", code)
    follows = " follows" if finding.caused_by is not None else ""
    return tag("article", body, class_=f"card {finding.severity}{follows}")


def _value(value: Any) -> str:
    match value:
        case int() | float():
            return number(value)
        case list() | tuple():
            return ", ".join(map(_value, value))
        case dict():
            return ", ".join(f"{name} {_value(one)}" for name, one in value.items())
    return str(value)


def _charts(rank: Rank, title: str) -> str:
    table_ = rank.scalars()
    series: dict[str, list[tuple[int, float]]] = {}
    for step, name, value in zip(*(table_[column].to_pylist() for column in ("step", "name", "value")), strict=True):
        series.setdefault(name, []).append((step, float("nan") if value is None else value))
    if not series:
        return ""
    order = sorted(series, key=lambda name: (name != "loss", not name.startswith("lr"), name.endswith("seconds"), name))
    return tag("h2", text(f"Curves{title}")) + tag(
        "div", "".join(chart(name, series[name]) for name in order[:24]), class_="charts"
    )


def _hits(rank: Rank, title: str) -> str:
    if not rank.hits:
        return ""
    groups = group_hits(rank.hits)
    rows = [_hits_together(group) if len(group) > 1 else _hit(group[0]) for group in groups[:HITS]]
    told = sum(map(len, groups[:HITS]))
    more = f" (the first {told} of {len(rank.hits)})" if told < len(rank.hits) else ""
    head = ["Step", "Phase", "Site", "Condition", "Set", "Seen"]
    return tag("h2", text(f"Hits{title}{more}")) + tag("div", table(head, rows), class_="scroll")


def group_hits(hits: Sequence[Hit]) -> list[list[Hit]]:
    """Hits of one watchpoint that follow each other: three or more of them are one row."""
    found: list[list[Hit]] = []
    for _, together in itertools.groupby(hits, key=lambda hit: (hit.watchpoint, hit.condition)):
        group = list(together)
        found += [group] if len(group) >= FEW else [[hit] for hit in group]
    return found


def _hits_together(hits: list[Hit]) -> list[str]:
    """As the first, with how many there are and where."""
    first, last = hits[0], hits[-1]
    row = _hit(first)
    if last.moment.step != first.moment.step:
        row[0] = f"{first.moment.step}–{last.moment.step}"
    others = len({hit.site for hit in hits}) - 1
    if others:
        row[2] += text(f" and {others} more")
    row[-1] = tag("b", text(f"{len(hits)} hits")) + text(", the first ") + row[-1]
    return row


def _hit(hit: Hit) -> list[str]:
    limits, seen = hit.met()
    preset = ", ".join(f"{name} {number(value)}" for name, value in limits.items())
    actual = ", ".join(f"{name} = {number(value)}" for name, value in seen.items())
    cells = [str(hit.moment.step), str(hit.moment.phase)]
    return [text(cell) for cell in cells] + [
        tag("code", text(cell)) for cell in (hit.site, hit.condition, preset, actual)
    ]
