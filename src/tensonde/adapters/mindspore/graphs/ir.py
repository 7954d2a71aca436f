"""The graph that MindSpore compiled, read from the `.pb` file that its dump writes.

The file is a protobuf message of MindSpore's own (`ModelProto`). Only the fields that are needed are read, by their numbers, so no
protobuf library is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_GRAPH = 4
_NODE = 1
_INPUT, _NAME, _OP, _SCOPE, _FULL, _SOURCE = 1, 2, 3, 4, 8, 9
_LINE = re.compile(r"In file (\S+?):(\d+)")


@dataclass(frozen=True, slots=True)
class Node:
    """One kernel of the graph. `inputs` are names of nodes, parameters and constants; `lines` run from the inside out."""

    name: str
    op: str
    scope: str
    full: str
    inputs: tuple[str, ...]
    lines: tuple[tuple[str, int], ...]


def read_graph(path: Path) -> list[Node]:
    """Its nodes, in topological order. Raises ValueError for a file that is none."""
    nodes = []
    for number, graph in _fields(path.read_bytes()):
        if number == _GRAPH and isinstance(graph, bytes):
            nodes += [_node(raw) for key, raw in _fields(graph) if key == _NODE and isinstance(raw, bytes)]
    return nodes


def _node(raw: bytes) -> Node:
    text: dict[int, str] = {}
    inputs = []
    for number, value in _fields(raw):
        if not isinstance(value, bytes):
            continue
        if number == _INPUT:
            inputs += [name.decode() for key, name in _fields(value) if key == 1 and isinstance(name, bytes)]
        elif number in (_NAME, _OP, _SCOPE, _FULL, _SOURCE):
            text[number] = value.decode(errors="replace")
    lines = tuple((file, int(line)) for file, line in _LINE.findall(text.get(_SOURCE, "")))
    return Node(text.get(_NAME, ""), text.get(_OP, ""), text.get(_SCOPE, ""), text.get(_FULL, ""), tuple(inputs), lines)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message by number: whole numbers as such, all else as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of kind {kind} at byte {at}")
        if at + size > len(data):
            raise ValueError(f"a field of {size} bytes at byte {at} of {len(data)}")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError(f"a number without an end at byte {at}")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
