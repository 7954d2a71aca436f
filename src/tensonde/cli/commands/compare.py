"""`tensonde compare`: where two trainings, dumps or checkpoints part."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import click

from tensonde.cli.show.progress import progress_of
from tensonde.cli.show.screen import Screen, error_console
from tensonde.cli.show.verdict import show_verdict
from tensonde.cli.twins import Twins, Wish
from tensonde.compare.judge import judge
from tensonde.compare.map import read_map
from tensonde.compare.side import has_traces, read_side
from tensonde.compare.sources import compare_sources
from tensonde.compare.verdict import Verdict
from tensonde.errors import RecordingError, UsageError
from tensonde.launch.dumping import INNER
from tensonde.model.documents import version_of
from tensonde.store.reader import Recording
from tensonde.store.sources import open_source


@click.command()
@click.argument("things", nargs=-1, type=click.Path(path_type=Path), metavar="[A B]")
@click.option("--run", "targets", multiple=True, metavar="'SCRIPT ARGS'", help="Run this script; give it twice.")
@click.option("--python-a", default="", metavar="PYTHON", help="The interpreter of the first script.")
@click.option(
    "--python-b", default="", metavar="PYTHON", help="The interpreter of the second, such as one with MindSpore."
)
@click.option("--same-init", is_flag=True, help="Start the second script with the first one's initial weights.")
@click.option("--same-data", is_flag=True, help="Give the second script the first one's batches.")
@click.option(
    "--steps", type=click.IntRange(2), default=100, show_default=True, metavar="N", help="Steps to run of each script."
)
@click.option(
    "--map",
    "map_file",
    type=click.Path(path_type=Path),
    metavar="FILE.yaml",
    help="Which name of A is which name of B.",
)
@click.option(
    "--record", type=click.Path(path_type=Path), metavar="DIR", help="Keep the recordings of both scripts here."
)
@click.option("--json", "as_json", is_flag=True, help="The verdict as JSON.")
@click.option("--html", "page", type=click.Path(path_type=Path), metavar="FILE.html", help="Also write an HTML page.")
@click.option(
    "--engine", type=click.Choice(["local", "ray"]), default="local", help="Where to compare dumps and checkpoints."
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing while the scripts run.")
def compare(
    things: tuple[Path, ...],
    targets: tuple[str, ...],
    python_a: str,
    python_b: str,
    same_init: bool,
    same_data: bool,
    steps: int,
    map_file: Path | None,
    record: Path | None,
    as_json: bool,
    page: Path | None,
    engine: str,
    quiet: bool,
) -> None:
    """Show where two trainings diverge, and why: data, initial weights, forward, backward or optimizer, and the first site.

    A and B are recordings, dumps or checkpoints; with --run, Tensonde runs two scripts. Exit code 0: equivalent, 1: divergent,
    2: they cannot be compared.

    \b
    tensonde compare --run ref.py --run port.py
    tensonde compare --run 'ref.py --lr 0.1' --run port.py --same-init --json
    tensonde compare --run ref_torch.py --run port_mindspore.py --python-b ~/mindspore/bin/python
    tensonde compare .tensonde/runs/monday .tensonde/runs/tuesday --html page.html
    tensonde compare last.pt other.safetensors
    tensonde compare dump/torch dump/mindspore --map names.yaml --engine ray
    """
    chosen = read_map(map_file) if map_file is not None else {}
    say = error_console(style="dim")
    if targets:
        if things or len(targets) != 2:
            raise UsageError("give two scripts, each with its own --run, or two recordings, dumps or checkpoints.")
        wish = Wish(steps, same_init, same_data, chosen, (python_a, python_b))
        tell = (lambda text: None) if quiet else (lambda text: say.print(f"tensonde: {text}", markup=False))
        if record is not None:
            record.mkdir(parents=True, exist_ok=True)
            verdict = Twins((targets[0], targets[1]), record, wish, tell).compare()
        else:
            with tempfile.TemporaryDirectory(prefix="tensonde-compare-") as folder:
                verdict = Twins((targets[0], targets[1]), Path(folder), wish, tell).compare()
    else:
        if len(things) != 2:
            raise UsageError(f"tensonde compare takes two recordings, dumps or checkpoints; {len(things)} were given.")
        verdict = stored(things[0], things[1], chosen, engine)
    finish(verdict, as_json=as_json, page=page)


def stored(one: Path, other: Path, chosen: dict[str, str], engine: str) -> Verdict:
    """Recordings by their traces, anything else by its tensors."""
    if is_run(one) and is_run(other):
        return judge(read_side(one), read_side(other), chosen).verdict
    with open_source(one) as a, open_source(other) as b:
        total = sum(entry.nbytes for source in (a, b) for entry in source.entries)
        with progress_of("comparing", total) as advance:
            if engine == "ray":
                from tensonde.compare.ray import Ray

                return compare_sources(a, b, chosen, work=Ray(), advance=advance)
            return compare_sources(a, b, chosen, advance=advance)


def is_run(path: Path) -> bool:
    """A recording that is compared by its traces. One without a traced step that holds a dump is a source of tensors."""
    try:
        recording = Recording.open(path)
    except RecordingError:
        return False
    if not recording.ranks:
        return False
    return has_traces(recording.ranks[0]) or not (recording.path / INNER).is_dir()


def finish(verdict: Verdict, *, as_json: bool, page: Path | None) -> None:
    if page is not None:
        from tensonde.compare.page import page_of

        try:
            page.write_text(page_of(verdict))
        except OSError as problem:
            raise UsageError(f"the page cannot be written to {page}: {problem.strerror}.") from None
    if as_json:
        click.echo(json.dumps({"schema": version_of("verdict"), **verdict.document()}, indent=2))
    else:
        show_verdict(Screen(highlight=False, soft_wrap=True), verdict)
    sys.exit(verdict.exit_code)
