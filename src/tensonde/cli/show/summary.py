"""The pages of `tensonde show RECORDING`, from the plain values of `overview`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tensonde.cli.show.covered import coverage_notes, modules_line, thinned_note
from tensonde.cli.show.plot import number, plot, sparkline
from tensonde.cli.show.screen import table
from tensonde.model.overhead import overhead_text

SEVERITY = {"error": "bold red", "warning": "yellow", "info": "cyan"}
STATE = {"finished": "green", "live": "cyan", "killed": "bold red", "empty": "yellow"}


def summary(facts: dict[str, Any], *, limit: int, plots: bool, width: int) -> Iterator[RenderableType]:
    """Header, series, findings, hits, sites, problems; a part without content is left out."""
    yield Text.assemble((facts["run"], "bold"), "  ", (facts["state"], STATE.get(facts["state"], "")))
    yield _header(facts)
    yield from _series(facts["scalars"], plots, width)
    yield from _section("Findings", _findings(facts["findings"], limit), facts["findings"], limit)
    yield from _section("Hits", _hits(facts["hits"], limit), facts["hits"], limit)
    yield from _section("Sites that stand out", _sites(facts["sites"]), facts["sites"], 0)
    if facts["problems"]:
        yield Text("\nDamage", style="bold red")
        yield from (Text(f"  {problem}") for problem in facts["problems"])


def _header(facts: dict[str, Any]) -> Table:
    grid = Table.grid(padding=(0, 2))
    ranks = ", ".join(f"rank {rank['rank']} {rank['state']}" for rank in facts["ranks"])
    entries = {
        "script": " ".join(map(str, [facts["script"] or "?", *facts["argv"]])),
        "framework": ", ".join(
            str(part)
            for part in (facts["framework"], facts["device"], facts["python"] and f"Python {facts['python']}")
            if part
        ),
        "ranks": f"{len(facts['ranks'])} ({ranks})" if ranks else "none",
        "steps": str(facts["steps"]),
        "duration": duration(facts["seconds"]),
        "exit": _exit(facts["exit"]),
        "overhead": _overhead(facts["overhead"]),
        "coverage": _coverage(facts),
        "kept": thinned_note(facts["thinned"]),
    }
    for name, value in entries.items():
        if value:
            grid.add_row(Text(name, style="dim"), Text(value))
    return grid


def duration(seconds: float) -> str:
    """`8.2 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _exit(entry: Any) -> str:
    if not isinstance(entry, dict):
        return ""
    code, exception = entry.get("code"), entry.get("exception")
    said = f"{exception['type']}: {exception['message']}" if isinstance(exception, dict) else exception
    return " ".join(str(part) for part in (None if code is None else f"code {code}", said) if part)


def _overhead(entry: Any) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get("ratio"), int | float):
        return _pairs(entry)
    return overhead_text(entry).removeprefix("overhead ")


def _coverage(facts: dict[str, Any]) -> str:
    entry = facts["coverage"]
    if not isinstance(entry, dict) or "modules" not in entry:
        return _pairs(entry)
    parameters = entry.get("parameters")
    said = ", ".join(part for part in (modules_line(entry), f"{parameters} parameters" if parameters else "") if part)
    return "\n".join([said, *coverage_notes(facts)]).strip()


def _pairs(entry: Any) -> str:
    if isinstance(entry, dict):
        return ", ".join(f"{key} {value}" for key, value in entry.items())
    return "" if entry is None else str(entry)


def _series(scalars: dict[str, list[tuple[int, float]]], plots: bool, width: int) -> Iterator[RenderableType]:
    """The loss and the learning rates first, each as a plot or as a line."""
    names = sorted(scalars, key=lambda name: (not name.startswith("loss"), not name.startswith("lr"), name))
    if not names:
        return
    yield Text()
    if plots:
        for name in names:
            if name.startswith(("loss", "lr")):
                steps, heights = zip(*scalars[name], strict=True)
                yield Text(plot(steps, heights, title=f"{name} over steps", width=width))
        return
    rows = []
    for name in names:
        values = [value for _, value in scalars[name]]
        rows.append((name, number(values[0]), number(values[-1]), sparkline(values)))
    yield table(("series", "first", "last", ""), rows, right=("first", "last"))


def _section(title: str, content: Table, entries: Sequence[Any], limit: int) -> Iterator[RenderableType]:
    if entries:
        yield Text(f"\n{title}", style="bold")
        yield content
        if limit and len(entries) > limit:
            yield Text(f"… and {len(entries) - limit} more; --limit 0 shows all", style="dim")


def _findings(findings: list[dict[str, Any]], limit: int) -> Table:
    rows = []
    for index, finding in enumerate(findings[: limit or None]):
        source = finding.get("source") or {}
        place = f"{source['file']}:{source['line']}" if source else finding.get("site") or ""
        cause = finding.get("caused_by")
        title = finding["title"] + ("" if cause is None else f" (caused by {cause})")
        severity = Text(finding["severity"], style=SEVERITY.get(finding["severity"], ""))
        step = "–" if finding.get("step") is None else str(finding["step"])
        rows.append((str(index), severity, step, title, place, finding.get("advice") or ""))
    return table(("#", "severity", "step", "finding", "where", "advice"), rows, right=("#", "step"))


def _hits(hits: list[dict[str, Any]], limit: int) -> Table:
    rows = []
    for hit in hits[: limit or None]:
        actual = ", ".join(f"{key} {number(float(value))}" for key, value in hit["actual"].items())
        rows.append((str(hit["step"]), hit["phase"], str(hit["rank"]), hit["site"], hit["condition"], actual))
    columns = ("step", "phase", "rank", "site", "condition", "actual")
    return table(columns, rows, right=("step", "rank"))


def _sites(sites: list[dict[str, Any]]) -> Table:
    rows = []
    for site in sites:
        flags = ", ".join(site["flags"]) + (f" from step {site['bad_from']}" if site["bad_from"] is not None else "")
        rows.append(
            (
                site["site"],
                site["type"] or "",
                str(site["digests"]),
                number(site["norm"]),
                number(site["absmax"]),
                Text(flags, style="red" if site["flags"] else ""),
            )
        )
    columns = ("site", "type", "digests", "max norm", "max absmax", "flags")
    return table(columns, rows, right=("digests", "max norm", "max absmax"))
