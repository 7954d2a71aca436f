"""A tensor's sketch: its scalar products with a few fixed vectors of signs, position by position.

Digests do not see where a value stands; a sketch does. And it is linear: the mean square of the difference of two
sketches estimates the squared distance of the two tensors, within a factor of two for `PROJECTIONS` products, without
either tensor at hand. Signs depend on the position in C order alone, so a reshaped tensor has the same sketch.
Values that are not finite count as 0.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

PROJECTIONS = 8
_PERIOD = 1 << 15
"""Signs of longer tensors are products of those of the place in the piece and those of the piece."""
_CHUNK = 32
"""Pieces that are widened to float64 at once."""


class Sketch:
    def __init__(self) -> None:
        self._signs: dict[torch.device, Tensor] = {}

    def __call__(self, tensor: Tensor) -> dict[str, float]:
        """Must be called where no mode of torch's sees it."""
        with torch.no_grad():
            found = self._products(torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor)
        return {f"sketch.{k}": value for k, value in enumerate(found)}

    def _products(self, tensor: Tensor) -> list[float]:
        signs = self._signs.get(tensor.device)
        if signs is None:
            signs = self._signs[tensor.device] = _signs().to(tensor.device)
        flat = tensor.reshape(-1)
        total = torch.zeros(PROJECTIONS, dtype=torch.float64, device=tensor.device)
        for begin in range(0, flat.numel(), _PERIOD * _CHUNK):
            piece = flat[begin : begin + _PERIOD * _CHUNK].to(torch.float64)
            piece = torch.nan_to_num(piece, nan=0.0, posinf=0.0, neginf=0.0)
            whole = piece.numel() // _PERIOD
            first = begin // _PERIOD
            if whole:
                products = piece[: whole * _PERIOD].view(whole, _PERIOD) @ signs
                total += (products * signs[(torch.arange(first, first + whole) * 7 + 3) % _PERIOD]).sum(0)
            rest = piece[whole * _PERIOD :]
            if rest.numel():
                total += (rest @ signs[: rest.numel()]) * signs[((first + whole) * 7 + 3) % _PERIOD]
        return total.tolist()  # type: ignore[no-any-return]


def _signs() -> Tensor:
    drawn = np.random.Generator(np.random.PCG64(20010)).integers(0, 2, (_PERIOD, PROJECTIONS))
    return torch.from_numpy(drawn * 2.0 - 1.0)
