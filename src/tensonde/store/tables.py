"""A stored table read back: its segments in order, Parquet or live, with what is damaged left out and
told."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tensonde.errors import UsageError
from tensonde.store.columns import column
from tensonde.store.damage import check_file, read_file
from tensonde.store.format import CLOSED, LIVE
from tensonde.store.segments import read_stream
from tensonde.store.thinning import current, one_in

Span = tuple[int, int] | None
Only = tuple[str, Collection[Any]] | None
DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, MemoryError, OverflowError)


class StoredTable:
    """The segments in one folder. `problem` gets one sentence per damaged file. One thread at a time; damage never
    raises."""

    def __init__(self, folder: Path, schema: pa.Schema, problem: Callable[[str], None]) -> None:
        self._folder, self.schema, self._problem = folder, schema, problem

    def read(
        self,
        columns: Sequence[str] | None = None,
        steps: range | tuple[int, int] | None = None,
        only: Only = None,
    ) -> pa.Table:
        """All rows in recorded order, restricted to `steps` and to the rows whose column `only[0]` is in
        `only[1]`."""
        chosen = list(self.schema.names) if columns is None else list(columns)
        if unknown := [name for name in chosen if name not in self.schema.names]:
            raise UsageError(f"there is no column {unknown[0]}; there are {', '.join(self.schema.names)}")
        needed = dict.fromkeys(chosen)
        if steps is not None:
            needed["step"] = None
        if only is not None:
            needed[only[0]] = None
        span = _span(steps)
        pieces = []
        for piece in self._pieces(list(needed), span):
            kept = _restrict(piece, steps, span, only)
            if kept.num_rows:
                pieces.append(kept.select(chosen))
        wanted = pa.schema([self.schema.field(name) for name in chosen])
        return pa.concat_tables(pieces) if pieces else pa.Table.from_batches([], wanted)

    def sound(self) -> bool:
        """Whether every part can be read; keeps no more than one part in memory."""
        told: list[str] = []
        check = StoredTable(self._folder, self.schema, told.append)
        for _ in check._pieces(self.schema.names, None):
            pass
        for text in told:
            self._problem(text)
        return not told

    def segments(self) -> tuple[list[Path], list[pa.Table]]:
        """For streaming: the Parquet files whose footer is whole, and the rest of the segments as tables in
        memory."""
        files: list[Path] = []
        tables: list[pa.Table] = []
        for number in self._numbers():
            path = self._folder / f"{number}{CLOSED}"
            if path.exists() and self._footer(path) is not None:
                files.append(path)
            else:
                tables.extend(self._live(number, self.schema.names))
        return files, tables

    def one_in(self) -> int:
        """How many of its oldest steps one is kept of (see `thinning`); 1 where all are."""
        for number in self._numbers()[:1]:
            path = self._folder / f"{number}{CLOSED}"
            with contextlib.suppress(*DAMAGE):  # told by whoever reads it
                check_file(path)
                return one_in(pq.read_schema(path))
        return 1

    def stamps(self) -> dict[str, tuple[str, int, int]]:
        """For readers that keep segments: each one's number, in order, and what changes when it does (how it is stored,
        its size, the time of its last change)."""
        found: dict[str, tuple[str, int, int]] = {}
        for number in self._numbers():
            for suffix in (CLOSED, LIVE):
                try:
                    known = (self._folder / f"{number}{suffix}").stat()
                except OSError:
                    continue
                found[number] = (suffix, known.st_size, known.st_mtime_ns)
                break
        return found

    def segment(self, number: str, columns: Sequence[str]) -> pa.Table:
        """The rows of one segment; empty where it is damaged or gone."""
        wanted = list(columns)
        closed = self._folder / f"{number}{CLOSED}"
        footer = self._footer(closed) if closed.exists() else None
        pieces = self._closed(closed, footer, wanted, None) if footer is not None else self._live(number, wanted)
        found = [piece for piece in pieces if piece.num_rows]
        schema = pa.schema([self.schema.field(name) for name in wanted])
        return pa.concat_tables(found) if found else pa.Table.from_batches([], schema)

    def _numbers(self) -> list[str]:
        try:
            names = [entry for entry in self._folder.iterdir() if entry.suffix in (LIVE, CLOSED)]
        except OSError:
            return []
        return current({entry.stem for entry in names})

    def _pieces(self, columns: list[str], span: Span) -> Iterator[pa.Table]:
        for number in self._numbers():
            closed = self._folder / f"{number}{CLOSED}"
            footer = self._footer(closed) if closed.exists() else None
            if footer is not None:
                yield from self._closed(closed, footer, columns, span)
            else:
                yield from self._live(number, columns, span)

    def _footer(self, path: Path) -> pq.FileMetaData | None:
        try:
            check_file(path)
            footer = pq.read_metadata(path)
            self._check(footer.schema.to_arrow_schema())
        except DAMAGE as error:
            self._problem(f"{_short(path)} cannot be read ({_line(error)}); it is left out")
            return None
        return footer

    def _closed(self, path: Path, footer: pq.FileMetaData, columns: list[str], span: Span) -> Iterator[pa.Table]:
        lost = 0
        try:
            with pq.ParquetFile(path, metadata=footer, page_checksum_verification=True) as file:
                for group in range(footer.num_row_groups):
                    if span is not None and not _overlaps(footer.row_group(group), span):
                        continue
                    try:
                        # Conversion checks what the pages hold; a page that decodes to nonsense must not get
                        # further.
                        yield self._conform(file.read_row_group(group, columns=columns), columns)
                    except DAMAGE as error:
                        lost += footer.row_group(group).num_rows
                        reason = _line(error)
        except DAMAGE as error:
            self._problem(f"{_short(path)} cannot be read ({_line(error)}); it is left out")
        if lost:
            self._problem(f"{_short(path)} is damaged ({reason}); {lost} rows of it are left out")

    def _live(self, number: str, columns: list[str], span: Span = None) -> Iterator[pa.Table]:
        path = self._folder / f"{number}{LIVE}"
        try:
            content = pa.py_buffer(read_file(path))
        except FileNotFoundError:
            # It became Parquet after the folder was listed. If that is damaged as well, it was told already.
            closed = path.with_suffix(CLOSED)
            footer = self._footer(closed) if closed.exists() else None
            if footer is not None:
                yield from self._closed(closed, footer, columns, span)
            return
        except OSError as error:
            self._problem(f"{_short(path)} cannot be read ({error}); it is left out")
            return
        table, wrong = read_stream(content)
        if table is not None:
            try:
                self._check(table.schema)
                yield self._conform(table, columns)
            except DAMAGE as error:
                self._problem(f"{_short(path)} cannot be read ({_line(error)}); it is left out")
                return
        if wrong:
            rows = 0 if table is None else table.num_rows
            self._problem(f"{_short(path)} is cut off after {rows} rows ({wrong}); what follows is left out")

    def _check(self, found: pa.Schema) -> None:
        if missing := [name for name in self.schema.names if name not in found.names]:
            raise ValueError(f"no column {missing[0]}")

    def _conform(self, table: pa.Table, columns: list[str]) -> pa.Table:
        wanted = pa.schema([self.schema.field(name) for name in columns])
        return table.select(columns).cast(wanted)


def _span(steps: range | tuple[int, int] | None) -> Span:
    """The first and last step, both included."""
    if steps is None or isinstance(steps, tuple):
        return steps
    return (min(steps), max(steps)) if len(steps) else (0, -1)


def _overlaps(group: Any, span: tuple[int, int]) -> bool:
    """Whether a row group may hold one of the steps, by the minimum and maximum in its footer."""
    for index in range(group.num_columns):
        if group.column(index).path_in_schema == "step":
            known = group.column(index).statistics
            return known is None or not known.has_min_max or (known.min <= span[1] and known.max >= span[0])
    return True


def _restrict(table: pa.Table, steps: range | tuple[int, int] | None, span: Span, only: Only) -> pa.Table:
    if span is not None:
        step = table["step"]
        table = table.filter(pc.and_(pc.greater_equal(step, span[0]), pc.less_equal(step, span[1])))
        if isinstance(steps, range) and abs(steps.step) != 1:
            table = table.filter(pc.is_in(table["step"], value_set=column(steps, pa.int64())))
    if only is not None:
        name, values = only
        table = table.filter(pc.is_in(table[name], value_set=column(values, table.schema.field(name).type)))
    return table


def _short(path: Path) -> str:
    return "/".join(path.parts[-3:])


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
