"""What a tensor is called in the target."""

from __future__ import annotations

import re

from tensonde.store.sources.entry import Entry

_AWKWARD = re.compile(r"[^\w.\-@\[\]#]+")
LONGEST = 180


def key_of(entry: Entry) -> str:
    """A checkpoint's tensors keep their names; others are `rank_0/000012/blocks.0.attn:out@1`."""
    if entry.step < 0 and entry.role == "value":
        return entry.name
    return f"rank_{entry.rank}/{max(entry.step, 0):06d}/{entry.key}"


def file_of(entry: Entry) -> str:
    """A path without its ending that every file system takes: `rank_0/000012/blocks.0.attn.out`."""
    folder, _, key = key_of(entry).rpartition("/") if entry.step >= 0 else ("", "", key_of(entry))
    if entry.step >= 0:
        folder, key = f"rank_{entry.rank}/{entry.step:06d}", entry.key
    name = _AWKWARD.sub("_", key.replace(":", ".")).strip(".") or "tensor"
    if len(name) > LONGEST:
        name = f"{name[: LONGEST - 9]}-{entry.order:08d}"
    return f"{folder}/{name}" if folder else name


def unique(names: list[str]) -> list[str]:
    """The same names, with a number where one comes again."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        count = seen.get(name.lower(), 0)
        seen[name.lower()] = count + 1
        found.append(name if not count else f"{name}~{count}")
    return found
