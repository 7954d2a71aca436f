"""One answer: a document of a `--json` or of the hub, shortened until it fits, and what to ask next.

The same question about the same recording gives the same answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tensonde.model.documents import Kind, version_of

TOKENS = 2000
MOST_TOKENS = 20_000
CHARACTERS_PER_TOKEN = 3
"""JSON with many numbers has about so few."""
_LONG = 160
_ENVELOPE = 300
"""Characters for what stands around the document when it has been shortened."""
Json = dict[str, Any]


@dataclass(slots=True)
class Answer:
    kind: Kind
    document: Any
    next: list[str] = field(default_factory=list)
    """Whole sentences, the best first."""
    beside: Json = field(default_factory=dict)
    """What is no part of the document: lines of source, output of a program."""

    def fitted(self, tokens: int) -> Json:
        """As sent. Lists end early, long texts are cut, and `left_out` says where."""
        whole: Json = {"kind": self.kind, "schema": version_of(self.kind), "answer": self.document, **self.beside}
        left_out: list[Json] = []
        room = tokens * CHARACTERS_PER_TOKEN - size({"next": self.next})
        if size(whole) > room:
            whole = json.loads(json.dumps(whole))  # a copy of its own
            left_out = shorten(whole, room - _ENVELOPE)
        more = [f"More of this answer: ask again with max_tokens up to {MOST_TOKENS}."] if left_out else []
        return {**whole, "left_out": left_out, "next": [*self.next, *more]}


def size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def shorten(document: Any, room: int) -> list[Json]:
    """Cuts the longest list or text again and again, in place. What was cut, by where it stands."""
    cut: dict[str, list[int]] = {}
    while (over := size(document) - room) > 0:
        found = max(_parts(document, ""), key=lambda part: (size(part[2]), part[1]), default=None)
        if found is None:
            break
        holder, where, value, key = found
        entry = cut.setdefault(where, [0, len(value)])
        entry[0] = _kept(value, over)
        holder[key] = value[: entry[0]]
    return [{"at": where, "shown": shown, "of": total} for where, (shown, total) in sorted(cut.items())]


def _kept(value: list[Any] | str, over: int) -> int:
    """How many items or characters stay, so that about `over` characters go, and at most half."""
    if isinstance(value, str):
        return max(_LONG // 2, len(value) - over, len(value) // 2)
    each = max(1, size(value) // len(value))
    return max(1, len(value) - over // each - 1, len(value) // 2)


def _parts(value: Any, where: str) -> Iterator[tuple[Any, str, Any, Any]]:
    """Lists of more than one thing and long texts: holder, path, value, key. Columns of numbers are not cut: they belong together."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        path = f"{where}.{key}" if where else str(key)
        if isinstance(item, str):
            if len(item) > _LONG:
                yield value, path, item, key
        elif isinstance(item, dict | list):
            if isinstance(item, list) and len(item) > 1 and not all(_is_number(one) for one in item):
                yield value, path, item, key
            yield from _parts(item, path)


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, int | float)
