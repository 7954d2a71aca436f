"""`tensonde convert`: kept tensors into another format."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tensonde.cli.choosing import chosen
from tensonde.cli.show.echo import echo
from tensonde.cli.show.progress import progress_of
from tensonde.errors import UsageError
from tensonde.model.documents import version_of
from tensonde.store.converting.convert import convert, format_of
from tensonde.store.sources import open_source


@click.command("convert")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--to",
    type=click.Choice(["npy", "npz", "safetensors", "parquet", "dump"]),
    help="The format (default: from the ending of the name).",
)
@click.option("--site", "sites", multiple=True, metavar="SITE", help="Only these, e.g. 'blocks.*:out'; repeatable.")
@click.option("--steps", metavar="0,10-20", help="Only these steps.")
@click.option("--rank", type=click.IntRange(0), metavar="N", help="Only this rank.")
@click.option("--widen", is_flag=True, help="Write bfloat16 and float8 as float32, for programs that do not know them.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def convert_command(
    source: Path,
    target: Path,
    to: str | None,
    sites: tuple[str, ...],
    steps: str | None,
    rank: int | None,
    widen: bool,
    as_json: bool,
) -> None:
    """Convert a dump, a recording or a checkpoint.

    Reads Tensonde's recordings and dumps, MindSpore's and msprobe's dumps, and checkpoints of torch, safetensors, npz, npy,
    Parquet and MindSpore. A target without an ending is a folder of .npy files.

    \b
    tensonde convert .tensonde/runs/NAME/dump tensors/
    tensonde convert --steps 3 --site '**.attn:out' dump/ step3.npz
    tensonde convert net.ckpt net.safetensors
    """
    form = format_of(target, to)
    opened = open_source(source, rank)
    entries = chosen(opened.entries, sites, steps)
    if not entries:
        raise UsageError(f"{source} holds no tensor to convert" + (" that was asked for." if sites or steps else "."))
    total = sum(entry.nbytes for entry in entries)
    with progress_of("converting", total) as advance:
        size = convert(opened, entries, target, form, widen=widen, progress=advance)
    for problem in opened.problems:
        echo(f"tensonde: {problem}", err=True)
    if as_json:
        done = {
            "schema": version_of("conversion"),
            "source": str(source),
            "kind": opened.kind,
            "target": str(target),
            "format": form,
            "tensors": len(entries),
            "bytes": size,
        }
        click.echo(json.dumps({**done, "problems": opened.problems}))
    else:
        echo(f"{len(entries)} tensors, {size / 1e6:,.1f} MB, to {target}")
