"""How exactly float32 is computed, as the program chose. Torch has two ways to say so, and raises where both were used."""

from __future__ import annotations

from typing import Any

import torch

_WORDS = {"ieee": "highest", "none": "highest", "tf32": "high", "bf16": "medium"}
"""What the newer way calls what the older one calls so."""


def matmul_precision() -> str:
    """Of products of float32 matrices: highest, high or medium."""
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:
        found = str(torch.backends.cuda.matmul.fp32_precision)
        return _WORDS.get(found, found)


def chosen() -> tuple[bool, Any]:
    """All of it, to be put back: whether the older way tells, and what."""
    try:
        return True, torch.get_float32_matmul_precision()
    except RuntimeError:
        return False, tuple(place.fp32_precision for place in _places())


def put(state: tuple[bool, Any]) -> None:
    if state == chosen():
        return
    old, value = state
    if old:
        torch.set_float32_matmul_precision(value)
    else:
        for place, precision in zip(_places(), value, strict=True):
            place.fp32_precision = precision


def _places() -> tuple[Any, ...]:
    backends: Any = torch.backends
    return backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn


def cudnn() -> dict[str, bool]:
    """What was chosen for NVIDIA's GPUs, where there is one."""
    flags: Any = torch.backends.cudnn
    if not flags.is_available():
        return {}
    try:
        tf32 = bool(flags.allow_tf32)
    except RuntimeError:
        tf32 = flags.conv.fp32_precision == "tf32"
    return {
        "convolution_tf32": tf32,
        "cudnn_benchmark": bool(flags.benchmark),
        "cudnn_deterministic": bool(flags.deterministic),
    }
