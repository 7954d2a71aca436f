"""A tensor's sketch: its scalar products with a few fixed vectors of signs, position by position.

Digests do not see where a value stands; a sketch does. And it is linear: the mean square of the difference of two
sketches estimates the squared distance of the two tensors, within a factor of two for `PROJECTIONS` products, without
either tensor at hand. Signs depend on the position in C order alone, so a reshaped tensor has the same sketch.
Values that are not finite count as 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tensonde.adapters.signs import PERIOD, PROJECTIONS, packed_signs, signs
from tensonde.digest.kernel import sketch

_CHUNK = 32
"""Pieces that are widened to float64 at once."""


_KEYS = tuple(f"sketch.{k}" for k in range(PROJECTIONS))


class Sketch:
    def __init__(self) -> None:
        self._signs: dict[torch.device, Tensor] = {}

    def __call__(self, tensor: Tensor) -> dict[str, float]:
        """Must be called where no mode of torch's sees it."""
        found: Sequence[float] | None = None
        if not tensor.is_complex():
            found = sketch(tensor, packed_signs())  # None on a device, or for a dtype that the kernel does not know
        if found is None:
            found = self._slowly(tensor)
        return dict(zip(_KEYS, found, strict=True))

    def _slowly(self, tensor: Tensor) -> Sequence[float]:
        with torch.no_grad():
            real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
            if real.device.type == "mps":  # which has no float64
                real = real.cpu()
            quick = sketch(real, packed_signs()) if real.device.type == "cpu" else None
            return quick if quick is not None else self._products(real)

    def _products(self, tensor: Tensor) -> Sequence[float]:
        vectors = self._signs.get(tensor.device)
        if vectors is None:
            vectors = self._signs[tensor.device] = torch.from_numpy(signs()).to(tensor.device)
        flat = tensor.reshape(-1)
        total = torch.zeros(PROJECTIONS, dtype=torch.float64, device=tensor.device)
        for begin in range(0, flat.numel(), PERIOD * _CHUNK):
            piece = flat[begin : begin + PERIOD * _CHUNK].to(torch.float64)
            piece = torch.nan_to_num(piece, nan=0.0, posinf=0.0, neginf=0.0)
            whole = piece.numel() // PERIOD
            first = begin // PERIOD
            if whole:
                products = piece[: whole * PERIOD].view(whole, PERIOD) @ vectors
                total += (products * vectors[(torch.arange(first, first + whole) * 7 + 3) % PERIOD]).sum(0)
            rest = piece[whole * PERIOD :]
            if rest.numel():
                total += (rest @ vectors[: rest.numel()]) * vectors[((first + whole) * 7 + 3) % PERIOD]
        return total.tolist()  # type: ignore[no-any-return]
