"""Damage to files, seeded: bytes for any file, and values for those whose content is JSON (also in a safetensors header)."""

from __future__ import annotations

import copy
import json
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 1.5, -0.0, 1e308, float("nan"), float("inf"), "", "NaN", "x", "\x00",
    "\x1b[2J", "../../x", "a" * 5000, "é\ud800", [], [[]], [None], {}, {"": None}, {"name": 3}, [0] * 50,
)  # fmt: skip


def mutate(path: Path, seed: random.Random) -> str:
    """Damages one file; says how."""
    content = path.read_bytes()
    ways: list[Callable[[bytes, random.Random], bytes]] = [_bytes, _bytes]
    if path.suffix == ".json":
        ways = [_json, _json, _json, _bytes]
    elif path.suffix == ".jsonl":
        ways = [_json_line, _json_line, _json_line, _bytes]
    elif path.suffix == ".safetensors":
        ways = [_header, _header, _bytes]
    elif path.suffix == ".npy":
        ways = [_npy, _npy, _bytes]
    elif content[:2] == b"PK":
        ways = [_zip, _zip, _bytes]
    way = seed.choice(ways)
    try:
        path.write_bytes(way(content, seed))
    except (ValueError, TypeError, KeyError, struct.error, zipfile.BadZipFile):  # it was damaged before
        path.write_bytes(_bytes(content, seed))
    return f"{path.name}: {way.__name__}"


def _bytes(content: bytes, seed: random.Random) -> bytes:
    made = bytearray(content)
    for _ in range(seed.choice((1, 1, 2, 8))):
        at = seed.randrange(len(made) + 1)
        match seed.randrange(5):
            case 0 if made:
                made[min(at, len(made) - 1)] ^= 1 << seed.randrange(8)
            case 1:
                del made[at:]
            case 2:
                made[at:at] = seed.choice((b"\0", b"\xff" * 8, b"[" * 2000, b"9" * 400, b"\n", b"-"))
            case 3:
                del made[at : at + seed.randrange(1, 40)]
            case _:
                made[at : at + 8] = struct.pack("<q", seed.choice((-1, 2**62, 0, 2**31)))
    return bytes(made)


def change(value: Any, seed: random.Random) -> Any:
    """The same document with one place changed: another value, a key less, an item twice."""
    places: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        keys = list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
        for key in keys:
            places.append((item, key))
            waiting.append(item[key])
    if not places or seed.random() < 0.02:
        return copy.deepcopy(seed.choice(ODD))
    holder, key = seed.choice(places)
    match seed.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[str(key) + "x"] = holder.pop(key)
        case 2 if isinstance(holder[key], int) and not isinstance(holder[key], bool):
            holder[key] = seed.choice((-holder[key] - 1, holder[key] * 10**30, str(holder[key])[:50], -0.5))
        case _:
            holder[key] = copy.deepcopy(seed.choice(ODD))
    return value


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _json(content: bytes, seed: random.Random) -> bytes:
    value = json.loads(content)
    for _ in range(seed.choice((1, 1, 3))):
        value = change(value, seed)
    return _dumped(value)


def _json_line(content: bytes, seed: random.Random) -> bytes:
    lines = content.splitlines()
    if not lines:
        return _bytes(content, seed)
    at = seed.randrange(len(lines))
    lines[at] = _json(lines[at], seed)
    return b"\n".join(lines) + b"\n"


def _header(content: bytes, seed: random.Random) -> bytes:
    (length,) = struct.unpack("<Q", content[:8])
    head = _json(content[8 : 8 + length].strip(), seed)
    return struct.pack("<Q", len(head)) + head + content[8 + length :]


def _npy(content: bytes, seed: random.Random) -> bytes:
    end = content.index(b"\n") + 1
    shape = seed.choice(
        ("(-1,)", "(4611686018427387904, 4)", "()", "(3, -2)", "(2.5,)", "(True,)", "3", "(0, 99999999999999999999)")
    )
    kind = seed.choice(("<f4", ">f8", "|O", "<U9", "<M8[s]", "V2", "[('a','<f4')]", "<f4, <f4", "x"))
    head = (
        f"{{'descr': {kind!r}, 'fortran_order': {seed.choice(('False', 'True', '3'))}, 'shape': {shape}, }}\n".encode()
    )
    return content[:8] + struct.pack("<H", len(head)) + head + content[end:]


def _zip(content: bytes, seed: random.Random) -> bytes:
    """An archive with one member damaged, left out, or compressed."""
    import io

    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        names = old.namelist()
        chosen = seed.choice(names)
        for name in names:
            inside = old.read(name)
            kind = zipfile.ZIP_STORED
            if name == chosen:
                match seed.randrange(5):
                    case 0:
                        continue
                    case 1:
                        kind = zipfile.ZIP_DEFLATED
                    case 2 if name.endswith(".npy"):
                        inside = _npy(inside, seed)
                    case _:
                        inside = _bytes(inside, seed)
            new.writestr(zipfile.ZipInfo(name), inside, kind)
    return made.getvalue()
