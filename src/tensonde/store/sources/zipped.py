"""Members of a zip file: where one lies that is stored uncompressed, so that it can be mapped instead of unpacked; and which archives are
not to be unpacked at all."""

from __future__ import annotations

import struct
import zipfile
from typing import IO

LARGE = 1 << 30
"""What has to be put together in memory is, up to this size or to four times what it takes in the file."""
NOTES_LIMIT = 1 << 26
"""Bytes of a member that is not a tensor."""


def honest(archive: zipfile.ZipFile, file: IO[bytes]) -> dict[str, zipfile.ZipInfo]:
    """The members by name. Raises ValueError for an archive that is made to unpack to more than any program wrote: members that
    lie in each other, packed in an unusual way, or texts of gigabytes."""
    members = {member.filename: member for member in archive.infolist()}
    size = file.seek(0, 2)
    if sum(member.compress_size for member in archive.infolist()) > size:
        raise ValueError("its members overlap, so it is no archive that a program wrote")
    for name, member in members.items():
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name[:80]} is compressed in a way that neither numpy nor torch uses")
        if member.compress_type == zipfile.ZIP_STORED and member.file_size != member.compress_size:
            raise ValueError(f"{name[:80]} is not compressed, and has two sizes")
        if not name.endswith(".npy") and member.compress_type != zipfile.ZIP_STORED and member.file_size > NOTES_LIMIT:
            raise ValueError(f"{name[:80]} unpacks to {member.file_size} bytes")
    return members


def stored_at(file: IO[bytes], member: zipfile.ZipInfo) -> int:
    """The offset of the member's bytes. Its local header has its own lengths, which may differ from the directory's."""
    file.seek(member.header_offset)
    local = file.read(30)
    if len(local) < 30 or local[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"{member.filename} is not where the directory says")
    name, extra = struct.unpack("<HH", local[26:30])
    return member.header_offset + 30 + int(name) + int(extra)
