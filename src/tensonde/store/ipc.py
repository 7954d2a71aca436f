"""The writing side of a table: Arrow IPC, written without pyarrow, which would take 30 MB of a training's memory and a tenth of a second.

A table on disk is numbered segments: `000000.arrows` while one grows, `000000.parquet` once it is full (see `segments`). An .arrows file is an Arrow
IPC stream without its end mark: the schema, then one message a batch, each written whole.
"""

from __future__ import annotations

import base64
import contextlib
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensonde.digest.layout import COUNTS, ROW, STATS
from tensonde.store.files import Appender
from tensonde.store.format import LIVE

BATCHES = 4096
"""Batches a segment, at most: each takes its time to read, however small it is."""


def _head(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


# The schemas of schemas.py as a stream begins with them. tests/store/test_ipc.py prints them anew where they differ.
DIGEST_HEAD = _head(
    "eNp9lKFPAzEUxt+OsQ0yMTESxMQEcplGIpAIBIqQkGPr2JKtd9kdBAiCoBAIBGISTQgKMYmYmETxN0wgkIjdyvd6JWvG7pp87evdr6/d93pTSq"
    "mHLFGJuK1TkXK0SgVEaJks5oRZAX3W9EQbUA3BZIXoDbqB9qAK9OUQDaE76ACqQl8ZcNANdABtQT/IMYYGUNvk3Z4qhaFURlc1z4BSBVqDxIXv"
    "SSHDALETKcVMN17j8Pk3zRoyYycUPY7rYPn9IGZXlrHS62vWUcw4NEpg85B7EvSEK6lu2O8ENmdY94Lo0LCVaM6WLRbWURA26dZwu1HyWfXmaK"
    "+G9VNy8uafhhtYXGWR60h94gKU008dGkdzb22e74EUp27YORc8f4+5zA66aZRcjyvR9zj+tvjabDmfj/c47sgWVWdz/iiF971A8/sWf2/xi95I"
    "2HhtscOE3KtQwzuTIcYXi5+k8K2ue8r39FnFd6+sktlmeOmzkVwn9nZHLfedWb/tBkLXKavrxLyvkj1vuN0ux82YyfA385TCB/hoOH60+I80Ph"
    "Q+xyM196UEpwu6JkU9i/9b/v8eroHXb4ItQnm95i/HL4nw0Hw="
)
SCALAR_HEAD = _head(
    "eNr7////fwFGBgYBBhDgYuBhYGNgZeAAsoCAkQXIZwDyOIAkC5SE4DVAnAHEFlB+CdAcIMUMMkcGKgYCrEBclphTmgo0lwOI2cCiTAxLIOpZ0d"
    "WD6LzE3FQImwXMvwBRywRSK4GmtrgktQDEPgJRw+jAAPKLCNit7GDXC0D9BtGPbBczEOcXpQDV8gAxO1gPzAwAjtUdQQ=="
)

SMALL = ("step", "site", "call", "phase", "dtype", "flags")
_WORDS = ROW.itemsize // 8
_FIRST_WORD = ROW.fields["count"][1] // 8  # type: ignore[index]
_WIDE = len(COUNTS) + len(STATS)

# A message is 0xFFFFFFFF, the size of what follows up to the body, a flatbuffer, and the body. The flatbuffer (Message.fbs of Arrow's format) always has the same
# shape: the place of the message, its vtable (version, kind of header, header, length of the body) and itself; the vtable of the record batch (rows, nodes, buffers) and
# itself; then the two vectors. Offsets count from where they stand.
_FIXED = struct.Struct("<I 6H iIqhBxxxxx 5H6x iIqIxxxx xxxxI")
_VERSION, _RECORD_BATCH = 4, 3
_NODES_AT = 88


def _message(rows: int, lengths: Sequence[int], buffers: Sequence[Any]) -> bytes:
    """A record batch: the lengths of its columns, each followed by that of its child, and their buffers in the order of the schema; None for a
    bitmap of nulls, of which there are none."""
    places: list[int] = []
    body: list[bytes | memoryview] = []
    size = 0
    for buffer in buffers:
        content = memoryview(b"" if buffer is None else buffer).cast("B")
        places += (size, len(content))
        body += (content, bytes(-len(content) % 8))
        size += len(content) + -len(content) % 8
    nodes = [number for length in lengths for number in (length, 0)]
    after = _NODES_AT + 8 * len(nodes)
    fixed = _FIXED.pack(
        16,
        12, 20, 16, 18, 4, 8,
        12, 36, size, _VERSION, _RECORD_BATCH,
        10, 20, 8, 4, 16,
        16, 24, rows, after + 4 - 72,
        len(lengths),
    )  # fmt: skip
    vectors = struct.pack(f"<{len(nodes)}qxxxxI{len(places)}q", *nodes, len(buffers), *places)
    return b"".join((struct.pack("<II", 0xFFFFFFFF, len(fixed) + len(vectors)), fixed, vectors, *body))


def digest_message(rows: np.ndarray[Any, Any], first: int) -> bytes:
    """`rows` (of dtype ROW) as a batch whose `ord` starts at `first`. Raises ValueError for another array."""
    if rows.dtype != ROW or rows.ndim != 1:
        raise ValueError(f"digests must be one-dimensional of dtype ROW, not {rows.ndim}-d of {rows.dtype}")
    rows = np.ascontiguousarray(rows)
    n = len(rows)
    columns = [np.arange(first, first + n, dtype=np.int64), *(rows[name].copy() for name in SMALL)]
    # The counts and statistics are eight bytes each and side by side: one transposed copy takes them all, in half the
    # time of a copy each.
    columns += list(rows.view(np.int64).reshape(n, _WORDS)[:, _FIRST_WORD : _FIRST_WORD + _WIDE].T.copy())
    bins = rows["exponents"].copy()
    buffers = [one for column in columns for one in (None, column)]
    return _message(n, [*([n] * len(columns)), n, bins.size], [*buffers, None, None, bins.reshape(-1)])


def scalar_message(scalars: Sequence[tuple[int, str, float]], first: int) -> bytes:
    """`scalars` as (step, name, value) in a batch whose `ord` starts at `first`."""
    steps, names, values = zip(*scalars, strict=True)
    n = len(scalars)
    texts = [name.encode("utf-8", "replace") for name in names]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    order, step = np.arange(first, first + n, dtype=np.int64), np.array(steps, dtype=np.int64)
    value = np.array(values, dtype=np.float64)
    return _message(n, [n] * 4, [None, order, None, step, None, ends, b"".join(texts), None, value])


class SegmentLog:
    """Appends messages after one head to a folder, and hands each full segment to `retire`. One thread at a
    time.

    `append` raises OSError as it comes and then nothing of that batch is kept; the next one opens a new
    segment, so that whatever the failure left behind spoils no later batch.
    """

    def __init__(self, folder: Path, head: bytes, *, limit: int, retire: Callable[[Path], None]) -> None:
        self._folder, self._limit, self._retire = folder, limit, retire
        self._head = head
        self._next = self._count = 0
        self._file: Appender | None = None

    def append(self, message: bytes) -> None:
        try:
            file = self._file
            if file is None:
                file = self._file = Appender(self._folder / f"{self._next:06d}{LIVE}")
                self._next, self._count = self._next + 1, 0
                file.append(self._head)
            file.append(message)
        except BaseException:
            self.rotate()
            raise
        self._count += 1
        if file.size >= self._limit or self._count >= BATCHES:
            self.rotate()

    def rotate(self) -> None:
        """End the segment, if there is one with a batch in it, and give it to `retire`. Never raises
        OSError."""
        file, self._file = self._file, None
        if file is None:
            return
        file.close()
        if file.size > len(self._head):
            self._retire(file.path)
        else:
            with contextlib.suppress(OSError):
                file.path.unlink()
