"""Tensors of a bundle: gathered once each, written as bytes, and laid out in memory as they were.

The layout matters: the same numbers in another order of memory may be added up in another order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tensonde.adapters.torch.replay.execute import same
from tensonde.adapters.torch.tensors import dtype_name, raw_view
from tensonde.errors import RecordingError
from tensonde.store.bundles import STATE, Stored
from tensonde.store.values import CODES


class Unsaveable(Exception):
    """Something that a bundle cannot hold; the text says what."""


class Gathered:
    """The tensors that go into a bundle. They are kept by reference until they are written."""

    def __init__(self) -> None:
        self.facts: dict[str, dict[str, Any]] = {}
        self.nbytes = 0
        self._tensors: dict[str, Tensor] = {}
        self._names: dict[int, str] = {}

    def add(self, name: str, tensor: Tensor) -> str:
        """The name that it goes by; the one that it was given first, when it is here already."""
        known = self._names.get(id(tensor))
        if known is not None:
            return known
        dtype = dtype_name(tensor)
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested or dtype not in CODES:
            raise Unsaveable(f"a {tensor.layout} tensor of {dtype}")
        if tensor.device.type == "meta" or torch._is_functional_tensor(tensor):
            raise Unsaveable("a tensor without values")
        facts: dict[str, Any] = {"dtype": dtype, "device": str(tensor.device)}
        if tensor.requires_grad:
            facts["requires_grad"] = True
        if not tensor.is_contiguous():
            facts["strides"] = list(tensor.stride())
        self.facts[name] = facts
        self._tensors[name] = tensor
        self._names[id(tensor)] = name
        self.nbytes += tensor.numel() * tensor.element_size()
        return name

    def value(self, tensor: Tensor) -> str:
        return self.add(f"value/{len(self._tensors)}", tensor)

    def name_of(self, tensor: Tensor) -> str:
        """ "" when it is not here."""
        return self._names.get(id(tensor), "")

    def random(self, state: Tensor) -> str:
        """States of a generator are often the same one after the other."""
        for name, known in reversed(self._tensors.items()):
            if name.startswith("random/"):
                if torch.equal(known, state):
                    return name
                break
        return self.add(f"random/{len(self._tensors)}", state)

    def stored(self) -> list[Stored]:
        return [
            Stored(
                name, dtype_name(tensor), tuple(tensor.shape), tensor.numel() * tensor.element_size(),
                lambda tensor=tensor: raw_view(tensor)[0],
            )
            for name, tensor in self._tensors.items()
        ]  # fmt: skip


class Contents:
    """The tensors of a bundle that was read; each is made once, however often it is asked for."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self._facts = facts
        self._path = folder / STATE
        self._made: dict[str, Tensor] = {}
        try:
            opened: Any = safe_open(str(self._path), framework="pt")
            self._file, self._names = opened, set(opened.keys())
        except (SafetensorError, OSError, ValueError) as error:
            raise RecordingError(f"{self._path} is damaged and cannot be read: {error}.") from None

    def name_of(self, tensor: Tensor) -> str:
        """ "" when it was not made here."""
        return next((name for name, made in self._made.items() if made is tensor), "")

    def plain(self, name: str) -> Tensor:
        """As it is in the file. Raises RecordingError."""
        facts = self._facts.get(name)
        if not isinstance(name, str) or name not in self._names or not isinstance(facts, dict):
            raise RecordingError(f"{self._path} holds no tensor {str(name)[:60]!r}, which the bundle refers to.")
        try:
            # In memory of its own: mapped from a file it may begin anywhere, and some processors round by where a tensor begins.
            tensor = self._file.get_tensor(name).clone()
            return torch.view_as_complex(tensor) if str(facts.get("dtype", "")).startswith("complex") else tensor
        except (SafetensorError, OSError, RuntimeError) as error:
            raise RecordingError(f"{self._path} is damaged: {name} cannot be read ({error}).") from None

    def tensor(self, name: str) -> Tensor:
        """With the layout, the device and the need of gradients that it had. Raises RecordingError."""
        made = self._made.get(name)
        if made is None:
            plain, facts = self.plain(name), self._facts[name]
            made = _laid_out(plain, facts.get("strides")).to(_device(facts.get("device")))
            if facts.get("requires_grad") is True and (made.is_floating_point() or made.is_complex()):
                made.requires_grad_()
            self._made[name] = made
        return made


def _laid_out(tensor: Tensor, strides: Any) -> Tensor:
    """In memory as it was; as it comes, where that cannot be or would take far more memory than it has numbers."""
    if not isinstance(strides, list) or len(strides) != tensor.ndim:
        return tensor
    if not all(type(stride) is int and stride >= 0 for stride in strides):
        return tensor
    repeated = [stride == 0 and size > 1 for stride, size in zip(strides, tensor.shape, strict=True)]
    sizes = [1 if again else size for again, size in zip(repeated, tensor.shape, strict=True)]
    extent = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True) if size)
    if extent > 4 * math.prod(sizes) + (1 << 18):
        return tensor
    once = tensor
    for dimension, again in enumerate(repeated):
        if again:
            once = once.narrow(dimension, 0, 1)
    made = torch.empty_strided(sizes, strides, dtype=tensor.dtype)
    try:
        made.copy_(once)
    except RuntimeError:
        return tensor
    if not same(made, once):  # windows that overlap
        return tensor
    return made.expand(tensor.shape) if any(repeated) else made


def _device(name: Any) -> torch.device:
    try:
        device = torch.device(str(name))
        if device.type == "cpu" or getattr(torch, device.type).is_available():
            return device
    except (RuntimeError, AttributeError):
        pass
    return torch.device("cpu")
