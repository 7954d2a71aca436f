"""`tensonde.print`: strings and tensors on the screen, from eager and from compiled code, in the order of the program.

In compiled code the print is an op of its own with an ordered effect, so that the graph does not break, the compiler
does not drop it, and prints come in program order. It goes to standard output, as Python's `print` does: it is
the script's own output, not Tensonde's.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.private import in_order
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.tensors import dense_of, dtype_name, shape_of, without_values
from tensonde.adapters.torch.tracing.measure import Measure

_HERE = "\0"
"""Stands for a tensor among the texts."""

_library = torch.library.Library("tensonde", "DEF")
_library.define("print(Tensor[] tensors, str[] texts, str sep, int precision, int most) -> ()")


def show(*things: Any, sep: str, precision: int, most: int, gradient: bool) -> Any:
    """What `tensonde.print` does; traced by dynamo as it stands, so it must stay plain."""
    texts = [_HERE if isinstance(thing, Tensor) else str(thing) for thing in things]
    tensors = [thing.detach() for thing in things if isinstance(thing, Tensor)]
    if gradient:
        label = [text for text in texts if text != _HERE]
        watched = [thing for thing in things if isinstance(thing, Tensor)]
        passed = [_Passing.apply(thing, label, sep, precision, most) for thing in watched]
        return passed[0] if len(passed) == 1 else tuple(passed)
    _emit(tensors, texts, sep, precision, most)
    return None


def _emit(tensors: list[Tensor], texts: list[str], sep: str, precision: int, most: int) -> None:
    if torch.compiler.is_compiling():
        torch.ops.tensonde.print(tensors, texts, sep, precision, most)
    else:
        with unseen():
            _write(tensors, texts, sep, precision, most)


class _Passing(torch.autograd.Function):  # type: ignore[misc]
    """Passes a tensor on unchanged and prints its gradient when the backward pass comes by."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, label: list[str], sep: str, precision: int, most: int) -> Tensor:
        ctx.form = (label, sep, precision, most)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        label, sep, precision, most = ctx.form
        _emit([gradients[0].detach()], [*label, _HERE], sep, precision, most)
        return gradients[0], None, None, None, None


def _write(tensors: Sequence[Tensor], texts: Sequence[str], sep: str, precision: int, most: int) -> None:
    waiting = iter(tensors)
    parts = [rendered(next(waiting), precision, most) if text == _HERE else text for text in texts]
    breaks = sep == " " and any("\n" in part for part in parts)
    builtins.print(*parts, sep="\n" if breaks else sep, file=sys.stdout, flush=True)


def rendered(tensor: Tensor, precision: int, most: int) -> str:
    """The tensor as text: all its values up to `most` elements, else its corners and its digest."""
    found = dense_of(tensor)
    if found is None:
        return f"Tensor(shape={list(shape_of(tensor))}, dtype={dtype_name(tensor)}: {without_values(tensor)})"
    plain = found.detach().cpu()
    if plain.ndim == 0:
        value = plain.item()
        return f"{value:.{precision}g}" if isinstance(value, float) else str(value)
    options = torch._tensor_str.PRINT_OPTS
    before = (options.precision, options.threshold, options.edgeitems, options.linewidth, options.sci_mode)
    torch.set_printoptions(precision=precision, threshold=most)
    try:
        values = torch._tensor_str._tensor_str(plain, 0)
    finally:
        options.precision, options.threshold, options.edgeitems, options.linewidth, options.sci_mode = before
    head = f"Tensor(shape={list(plain.shape)}, dtype={dtype_name(plain)}"
    if plain.numel() > most:
        head += _digest(plain)
    return f"{head}, value=\n{values})" if "\n" in values or len(values) > 60 else f"{head}, value={values})"


def _digest(tensor: Tensor) -> str:
    stats = Measure()(tensor)
    if not stats:
        return ""
    text = "".join(f", {name}={stats[name]:.4g}" for name in ("min", "max", "mean", "std"))
    bad = {"nan": stats["nan"], "inf": stats["pos_inf"] + stats["neg_inf"]}
    return text + "".join(f", {name}={count:.0f}" for name, count in bad.items() if count)


_library.impl("print", _write, "CompositeExplicitAutograd")
torch.library.register_fake("tensonde::print", lambda tensors, texts, sep, precision, most: None, lib=_library)
in_order(torch.ops.tensonde.print.default)
