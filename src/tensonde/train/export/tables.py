"""CSV and Parquet: one file with one view, or a folder with all of them."""

from __future__ import annotations

from pathlib import Path

from tensonde.store.files import replace_file
from tensonde.store.query import VIEWS, query
from tensonde.store.reader import Recording
from tensonde.store.rows import csv_bytes, parquet_bytes


def to_file(recording: Recording, path: Path, view: str) -> int:
    """Rows written. The name's ending decides the format."""
    order = {"sites": "", "whole": " ORDER BY site, step, call"}.get(view, " ORDER BY process, ord")
    table = query(recording, f"SELECT * FROM {view}{order}")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, csv_bytes(table) if path.suffix == ".csv" else parquet_bytes(table))
    return int(table.num_rows)


def to_folder(recording: Recording, folder: Path, ending: str) -> int:
    return sum(to_file(recording, folder / f"{view}{ending}", view) for view in VIEWS)
