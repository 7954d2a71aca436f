"""SQL over recordings, by an in-memory DuckDB that can reach nothing but the recordings it was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from tensonde.digest.layout import COUNTS, DTYPES, STATS
from tensonde.errors import UsageError
from tensonde.model.moment import Phase
from tensonde.store.reader import Recording
from tensonde.store.schemas import DIGEST_SCHEMA, SCALAR_SCHEMA
from tensonde.store.tables import StoredTable
from tensonde.store.views import small_tables
from tensonde.store.whole import SCHEMA as WHOLE_SCHEMA
from tensonde.store.whole import whole_digests

VIEWS = ("digests", "sites", "scalars", "hits", "findings", "events", "collectives", "whole")
_LOCKED = ("python_enable_replacements=false", "enable_external_access=false", "lock_configuration=true")
_WRONG_SQL = (
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.PermissionException,
)
_WRITES = ("ALTER", "CREATE", "DELETE", "DROP", "INSERT", "MERGE_INTO", "UPDATE", "VACUUM")
_FAILURES = (duckdb.Error, pa.ArrowException, OSError, RuntimeError)


def query(recordings: Recording | Sequence[Recording], sql: str) -> pa.Table:
    """The rows that `sql` selects over the views VIEWS; the table belongs to the caller.

    Parquet segments are streamed, so a recording may be larger than memory; only where one is damaged inside
    is all of it read first, without the damaged part. Raises UsageError for wrong SQL, and for SQL that
    reaches for files, extensions or settings. Any thread: each call has a database of its own.
    """
    chosen = [recordings] if isinstance(recordings, Recording) else list(recordings)
    runs = dict(zip(_run_names(chosen), chosen, strict=True))
    try:
        try:
            table = _select(runs, sql, stream=True)
        except _WRONG_SQL:
            raise
        except _FAILURES:
            if not _damaged(chosen):
                raise
            table = _select(runs, sql, stream=False)
    except _FAILURES as error:
        message = f"The query failed: {_sentence(error)}; the views are {', '.join(VIEWS)}"
        raise UsageError(message) from error
    if table is None:
        raise UsageError(f"The query selects nothing; write a SELECT over the views {', '.join(VIEWS)}")
    return table


def _select(runs: dict[str, Recording], sql: str, *, stream: bool) -> pa.Table | None:
    connection = duckdb.connect(":memory:")
    try:
        _register(connection, runs, stream, whole="whole" in sql.lower())
        for setting in _LOCKED:
            connection.execute(f"SET {setting}")
        for statement in connection.extract_statements(sql):
            if statement.type.name in _WRITES:
                what = statement.type.name.lower().replace("_", " ")
                raise UsageError(
                    f"The query would {what}, and recordings are only read; write one SELECT, with WITH for steps."
                )
        relation = connection.sql(sql)
        return None if relation is None else relation.to_arrow_table()
    finally:
        connection.close()


def _damaged(recordings: list[Recording]) -> bool:
    """Whether any stored table has a part that cannot be read; reads them all, one part at a time."""
    tables = [table for one in recordings for rank in one.ranks for table in (rank.digest_table, rank.scalar_table)]
    return sum(not table.sound() for table in tables) > 0  # all are asked, so that all problems are told


def _run_names(recordings: list[Recording]) -> list[str]:
    """The folder's name, or its whole path where two folders share a name."""
    names = [recording.name for recording in recordings]
    return [
        name if names.count(name) == 1 else str(recording.path)
        for name, recording in zip(names, recordings, strict=True)
    ]


def _sentence(error: BaseException) -> str:
    return " ".join(part.strip() for part in str(error).split("\n\n")[0].splitlines()).rstrip(".!")


def _register(connection: Any, runs: dict[str, Recording], stream: bool, whole: bool) -> None:
    """`whole`: whether whole tensors are asked for, which are made of shards here and now."""
    for name, table in small_tables({run: recording.ranks for run, recording in runs.items()}).items():
        connection.register(name, table)
    wholes = [whole_digests(run, recording.ranks) for run, recording in runs.items() if whole]
    connection.register("whole", pa.concat_tables([WHOLE_SCHEMA.empty_table(), *wholes]))
    phases = {"code": [int(phase) for phase in Phase], "phase": [str(phase) for phase in Phase]}
    connection.register("_phases", pa.table(phases))
    connection.register("_dtypes", pa.table({"code": list(range(len(DTYPES))), "dtype": list(DTYPES)}))
    _union(connection, "_digests", DIGEST_SCHEMA, runs, stream)
    _union(connection, "scalars", SCALAR_SCHEMA, runs, stream)
    # No finite value means no statistic: NULL, because DuckDB holds NaN to be greater than any number.
    stats = ", ".join(f'CASE WHEN NOT isnan(d."{name}") THEN d."{name}" END AS "{name}"' for name in STATS)
    counts = ", ".join(f'd."{name}"' for name in COUNTS)
    connection.execute(
        f"""CREATE VIEW digests AS SELECT d.run, d.process, d.rank, d.ord, d.step,
            coalesce(p.phase, d.phase::VARCHAR) AS phase, coalesce(s.site, '#' || d.site) AS site,
            s.name, s.role, s.kind, s.type, d.call,
            coalesce(t.dtype, d.dtype::VARCHAR) AS dtype, d.flags, {counts},
            d."nan" / nullif(d."count", 0) AS nans, (d.pos_inf + d.neg_inf) / nullif(d."count", 0) AS infs,
            d."zero" / nullif(d."count", 0) AS zeros, {stats}, d.exponents
            FROM _digests d LEFT JOIN sites s ON s.run = d.run AND s.process = d.process AND s.id = d.site
            LEFT JOIN _phases p ON p.code = d.phase LEFT JOIN _dtypes t ON t.code = d.dtype"""
    )


def _union(connection: Any, view: str, schema: pa.Schema, runs: dict[str, Recording], stream: bool) -> None:
    """One view over what every rank of every run stored in one of its tables."""
    stored: list[tuple[str, str, int, Any]] = [("", "", 0, schema.empty_table())]
    for run, recording in runs.items():
        for rank in recording.ranks:
            table = rank.scalar_table if schema is SCALAR_SCHEMA else rank.digest_table
            stored += [(run, rank.name, rank.rank, source) for source in _sources(table, stream)]
    selects = []
    for number, (run, process, rank_number, source) in enumerate(stored):
        connection.register(f"_{view}_{number}", source)
        facts = f"{_quoted(run)} AS run, {_quoted(process)} AS process, {rank_number} AS rank"
        selects.append(f"SELECT {facts}, * FROM _{view}_{number}")
    connection.execute(f"CREATE VIEW {view} AS {' UNION ALL '.join(selects)}")


def _sources(table: StoredTable, stream: bool) -> list[Any]:
    """All Parquet files as one source, and each live segment."""
    if not stream:
        return [table.read()]
    files, tables = table.segments()
    # The schema is given, so that files with more columns than this version knows fit in.
    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    parquet = ds.ParquetFileFormat(default_fragment_scan_options=options)
    return [*([ds.dataset(files, schema=table.schema, format=parquet)] if files else []), *tables]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
