"""Where a member of a zip file lies that is stored uncompressed, so that it can be mapped instead of unpacked."""

from __future__ import annotations

import struct
import zipfile
from typing import IO


def stored_at(file: IO[bytes], member: zipfile.ZipInfo) -> int:
    """The offset of the member's bytes. Its local header has its own lengths, which may differ from the directory's."""
    file.seek(member.header_offset)
    local = file.read(30)
    if len(local) < 30 or local[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"{member.filename} is not where the directory says")
    name, extra = struct.unpack("<HH", local[26:30])
    return member.header_offset + 30 + int(name) + int(extra)
