"""`tensonde query`: SQL over what was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensonde.cli.completion import complete_recording
from tensonde.cli.show.echo import echo
from tensonde.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = (".parquet", ".csv", ".json")


@click.command()
@click.argument("recordings", nargs=-1, required=True, shell_complete=complete_recording, metavar="[RECORDING...] SQL")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of rows.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write .parquet, .csv or .json.")
@click.option("--force", is_flag=True, help="Let --output replace a file.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=200,
    show_default=True,
    help="Rows to print as a table; 0 is all.",
)
def query(
    recordings: tuple[str, ...], as_json: bool, as_csv: bool, output: Path | None, force: bool, limit: int
) -> None:
    """Query one or more recordings in SQL (DuckDB's).

    The views are digests, sites, scalars, hits, findings and events; `DESCRIBE digests` lists the columns of
    one.
    With several recordings, the column `run` tells them apart; without one, the newest run is queried.

    \b
    Examples:
      tensonde query demo 'SELECT site, max(norm) FROM digests GROUP BY site ORDER BY 2 DESC LIMIT 5'
      tensonde query demo "SELECT step, value FROM scalars WHERE name = 'loss'" --csv
      tensonde query a b 'SELECT run, min(step) FROM digests WHERE nan > 0 GROUP BY run'
      tensonde query demo 'SELECT * FROM digests' --output digests.parquet
    """
    if len(recordings) < 2 and " " not in recordings[0].strip():
        raise UsageError("tensonde query needs a recording and SQL, such as: tensonde query demo 'SELECT * FROM hits'")
    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other; give one of them")
    *given, sql = recordings
    paths = given or ["."]
    if output is not None:
        _check_output(output, force)
    from tensonde.store.query import query as run_query
    from tensonde.store.reader import Recording

    opened = [Recording.open(path) for path in paths]
    result = run_query(opened, sql)
    for problem in (problem for recording in opened for problem in recording.problems):
        echo(f"tensonde: {problem}", err=True)
    if output is not None:
        _write(result, output)
    elif as_json:
        click.echo(_json(result))
    elif as_csv:
        from tensonde.store.rows import csv_bytes

        click.echo(csv_bytes(result).decode(), nl=False)
    else:
        _print(result, limit)


def _check_output(output: Path, force: bool) -> None:
    if output.suffix.lower() not in FORMATS:
        raise UsageError(f"{output} has no ending that says its format; end it in {', '.join(FORMATS)}")
    if output.exists() and not force:
        raise UsageError(f"{output} exists; give another name, or --force to replace it")


def _write(result: pa.Table, output: Path) -> None:
    from tensonde.store.files import replace_file
    from tensonde.store.rows import csv_bytes, parquet_bytes

    suffix = output.suffix.lower()
    if suffix == ".parquet":
        content = parquet_bytes(result)
    else:
        content = csv_bytes(result) if suffix == ".csv" else _json(result).encode()
    try:
        replace_file(output, content)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error}") from error


def _json(result: pa.Table) -> str:
    from tensonde.store.files import dump_json
    from tensonde.store.rows import rows_of

    return dump_json(rows_of(result), indent=2).decode()


def _print(result: pa.Table, limit: int) -> None:
    import pyarrow as pa

    from tensonde.cli.show.plot import number
    from tensonde.cli.show.screen import console, table
    from tensonde.store.files import dump_json
    from tensonde.store.rows import rows_of

    def cell(value: Any) -> str:
        if isinstance(value, list | dict):
            return dump_json(value).decode()
        return number(value) if value is None or isinstance(value, float) else str(value)

    shown = result.slice(0, limit) if limit else result
    rows = [[cell(value) for value in row.values()] for row in rows_of(shown)]
    types = pa.types
    right = [f.name for f in result.schema if types.is_integer(f.type) or types.is_floating(f.type)]
    out = console()
    out.print(table(result.column_names, rows, right=right))
    if shown.num_rows < result.num_rows:
        more = result.num_rows - shown.num_rows
        out.print(f"… and {more} more rows; --limit 0 shows all, --csv or --output keeps them")
