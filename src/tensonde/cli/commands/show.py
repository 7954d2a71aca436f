"""`tensonde show`: what was recorded, as tables and plots in the terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from tensonde.cli.completion import complete_recording, complete_site
from tensonde.cli.show.echo import echo

if TYPE_CHECKING:
    from tensonde.model.site import Site
    from tensonde.store.reader import Rank, Recording

FIELDS = ("norm", "absmax", "absmean", "mean", "std", "min", "max", "nan", "zero", "negative", "count")


@click.command()
@click.argument("recording", default=".", shell_complete=complete_recording)
@click.argument("site", required=False, shell_complete=complete_site)
@click.option("--steps", "span", metavar="A-B", help="Only these steps: 10, 10-20, 10- or -20.")
@click.option("--rank", type=int, help="Only this rank.")
@click.option("--field", type=click.Choice(FIELDS), default="norm", show_default=True, help="What to plot of SITE.")
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True, help="Rows per table; 0 is all.")
@click.option("--plot/--no-plot", default=None, help="Plots, or sparklines (default: plots on a terminal).")
@click.option("--graphs", is_flag=True, help="The compiled graphs, recompilations and graph breaks.")
@click.option("--ranks", is_flag=True, help="The ranks side by side, and the collectives that they call.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for other programs.")
@click.option("--html", "page", metavar="FILE", help="Write one self-contained HTML report; - is standard output.")
def show(
    recording: str,
    site: str | None,
    span: str | None,
    rank: int | None,
    field: str,
    limit: int,
    plot: bool | None,
    graphs: bool,
    ranks: bool,
    as_json: bool,
    page: str | None,
) -> None:
    """Show what a run recorded, or the history of a SITE in it.

    RECORDING is a run's folder, its name in .tensonde/runs, or a folder of runs for the newest one.
    SITE is an address or a pattern of addresses.

    \b
    Examples:
      tensonde show .tensonde/runs/demo
      tensonde show demo 'fc1:out' --steps 10-20
      tensonde show demo '**:grad' --field absmax --plot
      tensonde show demo --graphs
      tensonde show demo --ranks
      tensonde show demo --json | jq .findings
      tensonde show demo --html report.html
    """
    from tensonde.cli.show.screen import is_terminal
    from tensonde.store.reader import Recording

    opened = _only_rank(Recording.open(recording), rank)
    if page is not None:
        _write_page(opened, page, site, span, as_json)
        return
    steps = parse_steps(span)
    plots = is_terminal() if plot is None else plot
    if graphs:
        from tensonde.cli.show.graphs import show_graphs

        show_graphs(opened, as_json=as_json, limit=limit)
    elif ranks:
        from tensonde.cli.show.ranks import show_ranks

        show_ranks(opened, as_json=as_json, limit=limit)
    elif site is None:
        _show_run(opened, steps, limit, plots, as_json)
    else:
        _show_site(opened, site, steps, limit, field, plots, as_json)


def _write_page(recording: Recording, page: str, site: str | None, span: str | None, as_json: bool) -> None:
    from tensonde.errors import UsageError
    from tensonde.page.page import report

    if site is not None or span is not None or as_json:
        raise UsageError("--html writes the report of a whole run; leave out SITE, --steps and --json.")
    html = report(recording)
    if page == "-":
        click.echo(html, nl=False)
        return
    try:
        with open(page, "w", encoding="utf-8") as file:
            file.write(html)
    except OSError as problem:
        raise UsageError(f"--html {page}: {problem.strerror or problem}; name a file that can be written.") from None
    echo(f"tensonde: wrote {page}", err=True)


def parse_steps(text: str | None) -> tuple[int, int] | None:
    """`10`, `10-20`, `10-`, `-20` as (first, last), both included. Raises UsageError."""
    from tensonde.errors import UsageError

    if text is None:
        return None
    found = re.fullmatch(r"(\d*)(-?)(\d*)", text.strip())
    if not found or not (found[1] or found[3]):
        raise UsageError(f"--steps {text!r} is no range of steps; write 10, 10-20, 10- or -20")
    first = int(found[1] or 0)
    last = int(found[3]) if found[3] else first if not found[2] else 2**63 - 1
    if first > last:
        raise UsageError(f"--steps {text!r} ends before it begins; write {last}-{first}")
    return first, last


def _only_rank(recording: Recording, number: int | None) -> Recording:
    from tensonde.errors import UsageError
    from tensonde.store.reader import Recording

    if number is None:
        return recording
    ranks = [rank for rank in recording.ranks if rank.rank == number]
    if not ranks:
        there = ", ".join(str(rank.rank) for rank in recording.ranks) or "none"
        raise UsageError(f"{recording.name} has no rank {number}; its ranks are {there}")
    return Recording(recording.path, recording.manifest, ranks)


def _show_run(recording: Recording, steps: tuple[int, int] | None, limit: int, plots: bool, as_json: bool) -> None:
    from tensonde.cli.show.overview import overview
    from tensonde.cli.show.screen import console, plot_width, print_json

    facts = overview(recording, steps, limit)
    if as_json:
        from tensonde.model.documents import version_of

        print_json({"schema": version_of("run"), **facts})
        return
    from tensonde.cli.show.summary import summary

    out = console()
    for part in summary(facts, limit=limit, plots=plots, width=plot_width(out)):
        out.print(part)


def _show_site(
    recording: Recording,
    text: str,
    steps: tuple[int, int] | None,
    limit: int,
    field: str,
    plots: bool,
    as_json: bool,
) -> None:
    from tensonde.cli.show.history import history
    from tensonde.cli.show.overview import site_rows
    from tensonde.cli.show.screen import console, plot_width, print_json

    rows: list[dict[str, Any]] = []
    for rank, sites in _matching(recording, text):
        rows += site_rows(rank, sites, steps)
    if as_json:
        from tensonde.model.documents import version_of

        print_json(
            {"schema": version_of("history"), "run": recording.name, "rows": rows, "problems": recording.problems}
        )
        return
    out = console()
    for part in history(
        rows, field=field, limit=limit, plots=plots, width=plot_width(out), problems=recording.problems
    ):
        out.print(part)


def _matching(recording: Recording, text: str) -> list[tuple[Rank, list[Site]]]:
    """The sites that the pattern matches, by rank. Raises UsageError with the nearest names where none
    does."""
    from tensonde.errors import UsageError
    from tensonde.watch.pattern import Pattern
    from tensonde.watch.suggest import nearest

    pattern = Pattern.parse(text)
    found = [(rank, [site for site in rank.sites.values() if pattern.matches(site)]) for rank in recording.ranks]
    if not any(sites for _, sites in found):
        addresses = list(dict.fromkeys(site.address for rank in recording.ranks for site in rank.sites.values()))
        near = nearest(text, addresses)
        hint = f"did you mean {', '.join(near)}?" if near else f"it has {len(addresses)} sites"
        raise UsageError(f"no site of {recording.name} matches {text!r}; {hint}")
    return [(rank, sites) for rank, sites in found if sites]
