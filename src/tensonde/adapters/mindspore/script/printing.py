"""`tensonde.print`: strings and tensors on the screen, in the order of the program. In compiled code use MindSpore's `ops.print_`."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import numpy as np

from tensonde.adapters.mindspore.tensors import dtype_name, hook, is_tensor, shape_of, values_of
from tensonde.adapters.mindspore.tracing.measure import Measure


def show(things: tuple[Any, ...], sep: str, precision: int, most: int, *, gradient: bool) -> Any:
    """What `tensonde.print` does."""
    if not gradient:
        _write(things, sep, precision, most)
        return None
    label = [thing for thing in things if not is_tensor(thing)]
    watched = [thing for thing in things if is_tensor(thing)]
    for tensor in watched:

        def arrived(slope: Any) -> None:
            _write((*label, slope), sep, precision, most)

        hook(tensor, arrived)
    return watched[0] if len(watched) == 1 else tuple(watched)


def _write(things: tuple[Any, ...], sep: str, precision: int, most: int) -> None:
    parts = [rendered(thing, precision, most) if is_tensor(thing) else str(thing) for thing in things]
    breaks = sep == " " and any("\n" in part for part in parts)
    builtins.print(*parts, sep="\n" if breaks else sep, file=sys.stdout, flush=True)


def rendered(tensor: Any, precision: int, most: int) -> str:
    """The tensor as text: all its values up to `most` elements, else its corners and its digest."""
    array = values_of(tensor)
    if array is None:
        return f"Tensor(shape={list(shape_of(tensor))}, dtype={dtype_name(tensor)}: has no values)"
    if array.ndim == 0:
        return f"{float(array):.{precision}g}" if array.dtype.kind == "f" else str(array)
    values = np.array2string(array, precision=precision, threshold=most, separator=", ")
    head = f"Tensor(shape={list(array.shape)}, dtype={dtype_name(tensor)}"
    if array.size > most:
        stats = Measure()(array)
        head += "".join(f", {name}={stats[name]:.4g}" for name in ("min", "max", "mean", "std") if name in stats)
        head += "".join(f", {name}={stats[name]:.0f}" for name in ("nan", "pos_inf", "neg_inf") if stats.get(name))
    return f"{head}, value=\n{values})" if "\n" in values or len(values) > 60 else f"{head}, value={values})"
