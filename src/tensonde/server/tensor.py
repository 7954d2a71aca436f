"""Tensors by the tile: never more than is shown leaves the disk or the device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tensonde.digest.reference import digest_array
from tensonde.errors import UsageError
from tensonde.server.columns import gather
from tensonde.server.dumped import DumpedTensor
from tensonde.server.numbers import number, numbers
from tensonde.server.place import Place
from tensonde.server.reading import DIGEST, digest_out
from tensonde.server.refusals import NotNow
from tensonde.server.region import Plane, bounded, parse_index, plane, span
from tensonde.store.values import Value, map_value, widen

Json = dict[str, Any]
Array = np.ndarray[Any, Any]
WHOLE = 4 << 20
"""Elements of a plane that are looked at all; of a larger one, a sample."""
SAMPLES = 3
"""Samples of a patch each way, where a plane is too large to be looked at all."""
LARGEST_FILE = 1 << 30


class Tensor(Protocol):
    """One tensor at hand. `read` may raise UsageError; its result belongs to the caller."""

    address: str
    step: int | None
    shape: tuple[int, ...]
    dtype: str
    note: str

    def read(self, index: tuple[Any, ...]) -> Array: ...


@dataclass
class StoredTensor:
    value: Value
    note: str = ""

    def __post_init__(self) -> None:
        self.address, self.dtype = self.value.site, self.value.dtype
        self.step: int | None = self.value.moment.step
        self._content = map_value(self.value)
        self.shape = self.value.shape if self._content.shape == self.value.shape else tuple(self._content.shape)

    def read(self, index: tuple[Any, ...]) -> Array:
        return widen(self._content[index] if index else self._content[()], self.dtype)


def stored(place: Place, address: str, step: int | None) -> Tensor | None:
    """The tensor of that step as it was kept: at a hit, or in a dump. Of the latest where none is given."""
    found = [value for value in place.values if value.site == address]
    dump = place.recorded.dump if place.recorded is not None else None
    dumped = dump.entries(address) if dump is not None else []
    if step is not None:
        found = [value for value in found if value.moment.step == step]
        dumped = [entry for entry in dumped if entry.step == step]
    if dump is not None and dumped and (not found or dumped[-1].step > found[-1].moment.step):
        return DumpedTensor(dump, dumped[-1])
    return StoredTensor(found[-1]) if found else None


def steps_of(place: Place, address: str) -> list[int]:
    """At which steps it was kept."""
    dumped = place.recorded.dump.entries(address) if place.recorded is not None else []
    kept = {value.moment.step for value in place.values if value.site == address}
    return sorted(kept | {entry.step for entry in dumped})


def missing(place: Place, address: str, step: int | None) -> NotNow:
    steps = steps_of(place, address)
    if steps:
        shown = ", ".join(map(str, steps[:10])) + (f" and {len(steps) - 10} more" if len(steps) > 10 else "")
        return NotNow(f"{address} was not kept at step {step}; it was at {shown}.")
    if place.live is not None and place.live.connected:
        return NotNow(
            f"no value of {address} is kept; pause the training to see it, or set a watchpoint: a hit keeps the tensor."
        )
    return NotNow(
        f"the recording has no value of {address}; hits of watchpoints keep their tensors, and `tensonde run --dump` keeps all of them."
    )


def not_kept(place: Place, address: str) -> NotNow | None:
    """Why an op that a trace shows is not at hand at a stop: its sites are made when somebody wants them."""
    name = address.rpartition(":")[0]
    if "/" not in name or address in place.addresses or place.recorded is None:
        return None
    for path in place.recorded.trace_files():
        trace = place.recorded.trace(path)
        if trace is not None and any(op.site == name for op in trace.ops):
            return NotNow(
                f"of {name}, only the statistics of step {trace.step} were kept; continue to it to see its tensors."
            )
    return None


def tile(
    place: Place,
    tensor: Tensor,
    *,
    index: str,
    rows: str,
    cols: str,
    overview: int,
    stride: int,
    other: tuple[str, Tensor] | None,
) -> Json:
    chosen = plane(index, tensor.shape)
    height, width = chosen.size
    if overview:
        across = min(overview, 256)
        values, steps, sampled = pooled(tensor, chosen, across)
        shown, columns = (0, height), (0, width)
    else:
        step = max(stride, 1)
        shown, columns = span(rows, height, 64 * step), span(cols, width, 64 * step)
        if step == 1:
            shown, columns = bounded(shown, columns)
        steps = (step, step)
        values, sampled = _two(tensor.read(chosen.part(shown, columns, steps))), False
        if values.size > 65_536:
            raise UsageError(
                f"{values.size} numbers are too many for one answer; ask for fewer rows or a larger stride."
            )
    compared = against(tensor, chosen, shown, columns, steps, values, other, overview) if other is not None else None
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values.ravel()
    complex_note = "complex numbers are shown by their magnitude" if tensor.dtype.startswith("complex") else ""
    note = "; ".join(
        part for part in (tensor.note, complex_note, "a sample of the elements" if sampled else "") if part
    )
    return {
        "address": tensor.address, "step": tensor.step, "shape": list(tensor.shape), "dtype": tensor.dtype,
        "index": chosen.text, "rows": shown, "cols": columns, "stride": steps, "plane": (height, width),
        "values": numbers(values), "digest": digest_of(place, tensor),
        "min": number(finite.min()) if finite.size else None, "max": number(finite.max()) if finite.size else None,
        "note": note, "against": compared, "steps": steps_of(place, tensor.address),
    }  # fmt: skip


def _two(values: Array) -> Array:
    """As rows and columns, complex numbers by their magnitude."""
    values = _rows(values)
    return np.abs(values) if values.dtype.kind == "c" else values


def _rows(values: Array) -> Array:
    values = np.asarray(values)
    return values.reshape(1, -1) if values.ndim < 2 else values


def pooled(tensor: Tensor, chosen: Plane, across: int) -> tuple[Array, tuple[int, int], bool]:
    """At most across × across patches, each shown by its element of the largest magnitude; NaN counts as larger than all."""
    height, width = chosen.size
    patch = (max(1, math.ceil(height / across)), max(1, math.ceil(width / across)))
    sampled = height * width > WHOLE
    step = (math.ceil(patch[0] / SAMPLES), math.ceil(patch[1] / SAMPLES)) if sampled else (1, 1)
    values = _two(tensor.read(chosen.part((0, height), (0, width), step)))
    if not values.size:
        return values, (1, 1), False
    inner = (math.ceil(patch[0] / step[0]), math.ceil(patch[1] / step[1]))
    high, wide = math.ceil(values.shape[0] / inner[0]), math.ceil(values.shape[1] / inner[1])
    room = np.zeros((high * inner[0], wide * inner[1]), values.dtype if values.dtype.kind != "b" else np.uint8)
    room[: values.shape[0], : values.shape[1]] = values
    blocks = room.reshape(high, inner[0], wide, inner[1]).transpose(0, 2, 1, 3).reshape(high, wide, -1)
    size = np.abs(blocks.astype(np.float64)) if blocks.dtype.kind in "iu" else np.abs(blocks)
    picked = np.take_along_axis(blocks, size.argmax(axis=2)[..., None], axis=2)[..., 0]
    return picked, (inner[0] * step[0], inner[1] * step[1]), sampled


def against(
    tensor: Tensor, chosen: Plane, rows: tuple[int, int], cols: tuple[int, int], step: tuple[int, int],
    values: Array, other: tuple[str, Tensor], overview: int,
) -> Json:  # fmt: skip
    """The same part of another tensor; the measures are over the whole plane where that is not too large."""
    label, second = other
    if second.shape != tensor.shape:
        raise UsageError(
            f"{tensor.address} is {list(tensor.shape)} and {label} is {list(second.shape)}: only tensors of one shape can be compared."
        )
    height, width = chosen.size
    if overview:
        theirs, _, _ = pooled(second, chosen, min(overview, 256))
    else:
        theirs = _two(second.read(chosen.part(rows, cols, step)))
    first_all, second_all = values, theirs
    if height * width <= WHOLE:
        whole = chosen.part((0, height), (0, width))
        first_all, second_all = _rows(tensor.read(whole)), _rows(second.read(whole))
    with np.errstate(all="ignore"):
        exact = np.complex128 if "c" in (first_all.dtype.kind, second_all.dtype.kind) else np.float64
        a, b = first_all.astype(exact).ravel(), second_all.astype(exact).ravel()
        both = np.isfinite(a) & np.isfinite(b)
        x, y = a[both], b[both]
        norms = float(np.linalg.norm(x)), float(np.linalg.norm(y))
        difference = values.astype(np.float64) - theirs.astype(np.float64)
        return {
            "label": label, "values": numbers(theirs), "difference": numbers(difference),
            "max_abs": number(np.abs(x - y).max(initial=0.0)),
            "rel_l2": number(float(np.linalg.norm(x - y)) / norms[1] if norms[1] else (0.0 if not norms[0] else math.inf)),
            "cosine": number(float(np.vdot(x, y).real) / (norms[0] * norms[1]) if all(norms) else math.nan),
            "equal": bool(np.array_equal(first_all, second_all, equal_nan=first_all.dtype.kind in "fc")),
        }  # fmt: skip


def digest_of(place: Place, tensor: Tensor) -> Json | None:
    """As recorded for that step; else made, unless the tensor is large."""
    site = place.addresses.get(tensor.address)
    if site is not None and tensor.step is not None:
        columns = gather(place.segments(), site.id, DIGEST, (tensor.step, tensor.step))
        if len(columns["step"]):
            return digest_out({name: columns[name][-1] for name in DIGEST})
    if math.prod(tensor.shape) > WHOLE:
        return None
    return digest_out(digest_array(tensor.read(()))[0])


def histogram(tensor: Tensor, index: str, bins: int) -> Json:
    """Of the selected part; of a sample where it is large."""
    parts = parse_index(index, tensor.shape) if index.strip() else tuple(range(n) for n in tensor.shape)
    total = math.prod(len(part) for part in parts if isinstance(part, range))
    thin = max(1, math.ceil(total / WHOLE))
    chosen: list[Any] = [slice(p.start, p.stop, p.step) if isinstance(p, range) else p for p in parts]
    if thin > 1:
        longest = max((k for k, p in enumerate(parts) if isinstance(p, range)), key=lambda k: len(parts[k]))  # type: ignore[arg-type]
        part = parts[longest]
        assert isinstance(part, range)
        chosen[longest] = slice(part.start, part.stop, part.step * thin)
    values = np.asarray(tensor.read(tuple(chosen))).ravel()
    values = np.abs(values) if values.dtype.kind == "c" else values.astype(np.float64)
    finite = values[np.isfinite(values)]
    counts, edges = (
        np.histogram(finite, bins=max(1, min(bins, 1000))) if finite.size else (np.zeros(1, int), np.array([0.0, 1.0]))
    )
    return {
        "edges": numbers(edges), "counts": counts.tolist(), "nan": int(np.isnan(values).sum()),
        "pos_inf": int(np.isposinf(values).sum()), "neg_inf": int(np.isneginf(values).sum()), "sampled": thin > 1,
    }  # fmt: skip


def npy(tensor: Tensor, index: str) -> tuple[int, Iterator[bytes]]:
    """The selected part as a .npy file, in pieces, and its length in bytes."""
    parts = parse_index(index, tensor.shape) if index.strip() else tuple(range(n) for n in tensor.shape)
    shape = tuple(len(part) for part in parts if isinstance(part, range))
    kind = (
        np.asarray(tensor.read(tuple(slice(p.start, p.start) if isinstance(p, range) else p for p in parts))).dtype
        if shape
        else np.asarray(tensor.read(tuple(parts))).dtype
    )
    size = math.prod(shape) * kind.itemsize
    if size > LARGEST_FILE:
        raise UsageError(f"{tensor.address} is {size >> 20} MiB; give an index that selects at most 1 GiB.")
    from io import BytesIO

    head = BytesIO()
    np.lib.format.write_array_header_2_0(
        head, {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    )

    def pieces() -> Iterator[bytes]:
        yield head.getvalue()
        chosen: list[Any] = [slice(p.start, p.stop, p.step) if isinstance(p, range) else p for p in parts]
        first = next((k for k, p in enumerate(parts) if isinstance(p, range) and len(p)), None)
        if first is None or size <= 1 << 22:
            yield np.ascontiguousarray(tensor.read(tuple(chosen))).tobytes()
            return
        outer = parts[first]
        assert isinstance(outer, range)
        rows = max(1, (1 << 22) // max(size // len(outer), 1))
        for k in range(0, len(outer), rows):
            some = outer[k : k + rows]
            chosen[first] = slice(some.start, some.stop, some.step)
            yield np.ascontiguousarray(tensor.read(tuple(chosen))).tobytes()

    return len(head.getvalue()) + size, pieces()
