"""`tensonde export`: a recording for TensorBoard, W&B, or as CSV and Parquet."""

from __future__ import annotations

from pathlib import Path

import click

from tensonde.cli.completion import complete_recording
from tensonde.cli.show.echo import echo

FORMATS = ("tensorboard", "wandb", "csv", "parquet")
WHAT = ("scalars", "digests", "sites", "hits", "findings", "events")


@click.command()
@click.argument("recording", shell_complete=complete_recording)
@click.argument("destination", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "form",
    type=click.Choice(FORMATS),
    help="The format (default: from the ending of DESTINATION, or tensorboard).",
)
@click.option(
    "--what", type=click.Choice(WHAT), default="scalars", show_default=True, help="Which table, for a single file."
)
@click.option("--sites", default="**", show_default=True, help="The sites whose digests are exported.")
@click.option(
    "--fields", default="norm", show_default=True, help="Fields of the digests: norm,absmax,mean...; '' for none."
)
@click.option("--force", is_flag=True, help="Replace what is there.")
def export(
    recording: str, destination: Path, form: str | None, what: str, sites: str, fields: str, force: bool
) -> None:
    """Write a RECORDING as TensorBoard event files, as an offline W&B run, or as CSV or Parquet tables.

    DESTINATION is a folder or, for one table, a file that ends in .csv or .parquet.

    \b
    tensonde export demo board                      tensorboard --logdir board
    tensonde export demo loss.csv                   scalars in one table
    tensonde export demo tables --to parquet        all tables, one file each
    tensonde export demo offline --to wandb         wandb sync offline/wandb/offline-run-*
    """
    from tensonde.errors import UsageError
    from tensonde.store.reader import Recording

    opened = Recording.open(recording)
    if not opened.ranks:
        raise UsageError(f"{opened.path} holds no training, so there is nothing to export.")
    single = destination.suffix in (".csv", ".parquet")
    chosen = form or (destination.suffix[1:] if single else "tensorboard")
    if single and chosen != destination.suffix[1:]:
        raise UsageError(
            f"{destination} ends in {destination.suffix}, and --to {chosen} was asked for; give one or the other."
        )
    if destination.exists() and not force and (single or destination.is_file() or any(destination.iterdir())):
        raise UsageError(f"{destination} exists; give another name, or --force to add to it or replace it.")
    wanted = [field.strip() for field in fields.split(",") if field.strip()]
    try:
        if single:
            from tensonde.train.export.tables import to_file

            count = to_file(opened, destination, what)
        elif chosen in ("csv", "parquet"):
            from tensonde.train.export.tables import to_folder

            count = to_folder(opened, destination, f".{chosen}")
        elif chosen == "wandb":
            from tensonde.train.export.wandb import to_wandb

            count = to_wandb(opened, destination, sites=sites, fields=wanted)
        else:
            from tensonde.train.export.tensorboard import to_tensorboard

            count = to_tensorboard(opened, destination, sites=sites, fields=wanted)
    except OSError as problem:
        raise UsageError(f"{destination} cannot be written: {problem}") from None
    for problem_text in opened.problems[:3]:
        echo(f"tensonde: {problem_text}", err=True)
    echo(f"tensonde: {count} {'rows' if chosen in ('csv', 'parquet') else 'numbers'} to {destination}", err=True)
