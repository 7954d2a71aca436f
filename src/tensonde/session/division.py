"""A loss that was divided before `backward`, as gradient accumulation does, and what it was before.

The autograd graph of the loss ends with the division: `loss / 4` is a `DivBackward0` that still holds the 4. This tells
the number, and frames of the program may still hold the loss from before. No framework is imported here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

_DEEPEST = 4
"""Divisions in a row that are looked at: a trainer divides, and so does the library that it stands on."""


def divisions(loss: Any) -> Iterator[tuple[int, Any]]:
    """The whole numbers that `loss` was divided by, multiplied up from the last one, each with the node before it."""
    node: Any = getattr(loss, "grad_fn", None)
    product = 1
    for _ in range(_DEEPEST):
        divisor = _divisor(node)
        if divisor is None:
            return
        product *= divisor
        node = node.next_functions[0][0]
        yield product, node


def _divisor(node: Any) -> int | None:
    """The whole number that this node divides by; None for any other node."""
    name = node.name() if node is not None else ""
    if name == "ToCopyBackward0":
        return 1
    if name not in ("DivBackward0", "MulBackward0"):
        return None
    other = node._saved_other
    if other is None or other.ndim or other.requires_grad:
        return None
    value = float(other)
    value = 1 / value if name == "MulBackward0" and value else value
    near = round(value) if 0.5 < value < 1e6 else 0
    return near if near and abs(value - near) < 1e-6 * near else None


def divided_by(counts: Sequence[Sequence[int]], usual: int) -> int:
    """By what the losses of one step were divided because there are several of them; 1 where that is not known.

    `counts` has the products of `divisions` of each. `usual`: the result of the step before, which also holds for the
    last step of an epoch, for which fewer batches are left.
    """
    for number in (len(counts), usual):
        if number > 1 and counts and all(number in products for products in counts):
            return number
    return 1


def before_division(loss: Any, frame: FrameType | None) -> Any:
    """The loss as it was before it was divided, if a frame from `frame` outwards holds it, else `loss` itself."""
    nodes = {id(node): node for product, node in divisions(loss) if product > 1}
    while frame is not None and nodes:
        held = frame.f_locals
        try:
            for value in list(held.values()):
                if id(getattr(value, "grad_fn", None)) in nodes and getattr(value, "numel", _none)() == 1:
                    return value
        except Exception:  # an object of the program's that answers to no question
            pass
        finally:
            if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(held, dict):
                held.clear()  # a copy that Python keeps with the frame, and with it every tensor in it
        frame = frame.f_back
    return loss


def _none() -> int:
    return 0
