"""Tensors in a Parquet file as `tensonde convert` writes them: a row a tensor, with its raw bytes in `content`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tensonde.errors import RecordingError
from tensonde.store.damage import reading
from tensonde.store.sources.entry import Entry
from tensonde.store.sources.source import TensorSource

Array = np.ndarray[Any, Any]

SCHEMA = pa.schema(
    [
        ("ord", pa.int64()), ("rank", pa.int32()), ("step", pa.int64()), ("phase", pa.string()), ("call", pa.int32()),
        ("site", pa.string()), ("kind", pa.string()), ("type", pa.string()), ("dtype", pa.string()),
        ("shape", pa.list_(pa.int64())), ("nbytes", pa.int64()), ("content", pa.large_binary()),
    ]
)  # fmt: skip
MAGIC = b"PAR1"


class ParquetFile(TensorSource):
    kind, format = "dump", "parquet"

    def _entries(self) -> list[Entry]:
        self._places: list[tuple[int, int]] = []
        with reading(self.path, "a Parquet file"):
            file = pq.ParquetFile(self.path)
            missing = [name for name in SCHEMA.names if name not in file.schema_arrow.names]
            if missing:
                raise RecordingError(
                    f"{self.path} is a Parquet file without the column {missing[0]}, so not one that `tensonde convert` wrote."
                )
            columns = [name for name in SCHEMA.names if name != "content"]
            found: list[Entry] = []
            for group in range(file.num_row_groups):
                for k, row in enumerate(file.read_row_group(group, columns=columns).to_pylist()):
                    self._places.append((group, k))
                    found.append(
                        Entry(
                            row["site"], row["dtype"], tuple(row["shape"]), row["nbytes"], None, 0, row["step"], row["phase"],
                            row["call"], row["rank"], len(found), row["kind"], row["type"],
                        )
                    )  # fmt: skip
            return found

    def _made(self, entry: Entry) -> Array:
        group, row = self._places[entry.order]
        table = pq.ParquetFile(self.path).read_row_group(group, columns=["content"])
        content = np.frombuffer(table["content"][row].as_buffer(), np.uint8)
        if len(content) != entry.nbytes:
            raise ValueError(f"{entry.site} has {len(content)} bytes instead of {entry.nbytes}")
        return content


def looks_like(path: Path, start: bytes) -> bool:
    return start[:4] == MAGIC
