"""What `tensonde convert` notes beside tensors in formats that have names only: site, step and so on, and the true dtype."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tensonde.store.sources.entry import Entry

NOTES = "tensonde"
"""The key in the metadata of a safetensors file."""
FORMER_NOTES = "sonde"
"""The key in files made before the project was renamed."""
INDEX = "index.json"
"""The file beside `.npy` files; older versions also wrote it into a `.npz`."""
_FACTS = ("site", "dtype", "step", "phase", "call", "rank", "order", "kind", "type")

Notes = dict[str, dict[str, Any]]


def note_of(entry: Entry) -> dict[str, Any]:
    return {**{name: getattr(entry, name) for name in _FACTS}, "shape": list(entry.shape)}


def read_notes(text: str | bytes | None) -> Notes:
    """By key; {} where there are none, or what is there is something else."""
    try:
        content = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {str(key): note for key, note in content.items() if isinstance(note, dict)}


def read_note(text: bytes) -> dict[str, Any] | None:
    """The note of one tensor; None for anything else, such as a comment."""
    note = read_notes(b'{"note":' + text + b"}").get("note") if text else None
    return note if note is not None and all(name in note for name in (*_FACTS, "shape")) else None


def noted(notes: Notes, key: str, entry: Entry) -> Entry:
    """`entry` with what the notes say of it. Raises KeyError, TypeError or ValueError for a note that is damaged."""
    note: Mapping[str, Any] | None = notes.get(key)
    if note is None:
        return entry
    return replace(
        entry, site=str(note["site"]), dtype=str(note["dtype"]), shape=tuple(int(n) for n in note["shape"]),
        step=int(note["step"]), phase=str(note["phase"]), call=int(note["call"]), rank=int(note["rank"]),
        order=int(note["order"]), kind=str(note["kind"]), type=str(note["type"]),
    )  # fmt: skip


def in_order(entries: list[Entry]) -> list[Entry]:
    """By rank and recorded order where there is one, else as they stand; numbered anew."""
    ordered = sorted(entries, key=lambda entry: (entry.rank, entry.order))
    return [replace(entry, order=k) for k, entry in enumerate(ordered)]
