"""A weight of one framework in the shape that another one keeps it in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def fitted(given: NDArray[np.generic], shape: tuple[int, ...], *, transposed: bool) -> NDArray[np.generic] | None:
    """None where it is another weight. Sizes of 1 do not count: MindSpore's Conv1d is a Conv2d of height 1."""
    found = given.T if transposed and given.ndim == 2 else given
    if tuple(found.shape) == shape:
        return found
    return found.reshape(shape) if squeezed(found.shape) == squeezed(shape) else None


def squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)
