"""`tensonde merge`: the ranks of several machines as one run."""

from __future__ import annotations

from pathlib import Path

import click

from tensonde.cli.show.echo import echo
from tensonde.errors import UsageError


@click.command("merge")
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("parts", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
def merge_command(target: Path, parts: tuple[Path, ...]) -> None:
    """Merge ranks recorded on several machines into one new run, TARGET. The parts are not changed.

    \b
    tensonde merge whole node0/run node1/run
    """
    from tensonde.store.merging import merge

    try:
        ranks = merge(target, parts)
    except OSError as problem:
        raise UsageError(f"the run cannot be made at {target}: {problem.strerror or problem}.") from None
    world = next((size for rank in ranks if (size := rank.session.get("world_size"))), len(ranks))
    missing = sorted(set(range(world)) - {rank.rank for rank in ranks})
    echo(f"tensonde: {len(ranks)} ranks in {target}  (tensonde diagnose {target})", err=True)
    if missing:
        echo(f"tensonde: of {world} ranks, {', '.join(map(str, missing))} are missing", err=True)
