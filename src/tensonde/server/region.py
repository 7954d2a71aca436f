"""Which part of a tensor is meant: `0,2,:,:` leaves at most two dimensions free, and those are shown as rows and columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tensonde.errors import UsageError

MOST = 65_536
"""Numbers in one answer."""
_PART = re.compile(r"(-?\d+)|(-?\d+)?:(-?\d+)?(?::(\d+))?")


@dataclass(frozen=True, slots=True)
class Plane:
    """`fixed` is the index with a range in place of each free dimension; `free` says which those are (rows, columns)."""

    fixed: tuple[int | range, ...]
    free: tuple[int, ...]
    text: str

    @property
    def size(self) -> tuple[int, int]:
        spans = [len(part) for part in self.fixed if isinstance(part, range)]
        return (spans[0], spans[1]) if len(spans) == 2 else (1, spans[0]) if spans else (1, 1)

    def part(self, rows: tuple[int, int], cols: tuple[int, int], stride: tuple[int, int] = (1, 1)) -> tuple[Any, ...]:
        """The numpy index of rows × columns of the plane."""
        wanted = [(rows, stride[0]), (cols, stride[1])][-len(self.free) or 2 :]
        index: list[Any] = []
        taken = 0
        for part in self.fixed:
            if isinstance(part, range):
                (first, last), step = wanted[taken]
                taken += 1
                index.append(slice(part.start + first * part.step, part.start + last * part.step, part.step * step))
            else:
                index.append(part)
        return tuple(index)


def parse_index(text: str, shape: tuple[int, ...]) -> tuple[int | range, ...]:
    """One entry a dimension. Without a text, the last two are free and the others at 0."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not parts:
        parts = ["0"] * max(len(shape) - 2, 0) + [":"] * min(len(shape), 2)
    if len(parts) > len(shape):
        raise UsageError(
            f"the index {text!r} has {len(parts)} parts, but the tensor has {len(shape)} dimensions ({list(shape)})."
        )
    parts += [":"] * (len(shape) - len(parts))
    found: list[int | range] = []
    for part, size in zip(parts, shape, strict=True):
        match = _PART.fullmatch(part)
        if match is None:
            raise UsageError(f"{part!r} in the index {text!r} is neither a number nor a range; write e.g. 0,2,:,10:20.")
        if match[1] is not None:
            at = int(match[1])
            if not -size <= at < size:
                raise UsageError(
                    f"{at} in the index {text!r} is outside of a dimension of {size}; the shape is {list(shape)}."
                )
            found.append(at % size)
        else:
            low, high, step = (int(match[k]) if match[k] else None for k in (2, 3, 4))
            if step == 0:
                raise UsageError(f"{part!r} in the index {text!r} steps by 0.")
            found.append(range(*slice(low, high, step).indices(size)))
    return tuple(found)


def plane(text: str, shape: tuple[int, ...]) -> Plane:
    fixed = parse_index(text, shape)
    free = tuple(k for k, part in enumerate(fixed) if isinstance(part, range))
    if len(free) > 2:
        example = ",".join(["0"] * (len(shape) - 2) + [":", ":"])
        raise UsageError(f"the index {text!r} leaves {len(free)} dimensions free; leave at most two, e.g. {example}.")
    shown = ",".join(
        ":" if isinstance(part, range) and len(part) == shape[k] else _text(part) for k, part in enumerate(fixed)
    )
    return Plane(fixed, free, shown)


def _text(part: int | range) -> str:
    if isinstance(part, int):
        return str(part)
    return f"{part.start}:{part.stop}" + (f":{part.step}" if part.step != 1 else "")


def span(text: str, size: int, default: int) -> tuple[int, int]:
    """`0:64` within a dimension of the plane."""
    if not text:
        return 0, min(default, size)
    match = re.fullmatch(r"(\d+):(\d+)", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a range; write e.g. 0:64.")
    first = min(int(match[1]), max(size - 1, 0))
    return first, max(first, min(int(match[2]), size))


def bounded(rows: tuple[int, int], cols: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Cut down to MOST numbers."""
    width = min(cols[1] - cols[0], MOST)
    height = min(rows[1] - rows[0], MOST // max(width, 1))
    return (rows[0], rows[0] + height), (cols[0], cols[0] + width)
