"""Names of dtypes, and how their raw bytes become numbers.

Tensonde calls a dtype by torch's name. numpy has no bfloat16 and no float8: their raw bytes are kept as they are, and
as numbers they come as float32, which holds every one of their values exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensonde.store.values import CODES, float8_tables

Array = np.ndarray[Any, Any]

PLAIN = {name: np.dtype(name).newbyteorder("<") for name in CODES if not name.startswith(("bfloat", "float8"))}
"""Those that numpy has, as they are stored: little endian."""


def _fnuz(exponents: int, bias: int) -> Array:
    """float8 of the fnuz kind: no infinity, no negative zero; the byte that would be it is the only NaN."""
    byte = np.arange(128)
    digits = 7 - exponents
    exponent, mantissa = byte >> digits, byte & ((1 << digits) - 1)
    normal = np.ldexp(1 + mantissa / (1 << digits), exponent - bias)
    half = np.where(exponent == 0, np.ldexp(mantissa / (1 << digits), 1 - bias), normal)
    both = np.concatenate([half, -half])
    both[128] = np.nan
    return both.astype(np.float32)


_tables = float8_tables()
_BYTES: dict[str, Array] = {
    "float8_e4m3fn": _tables["F8_E4M3"],
    "float8_e5m2": _tables["F8_E5M2"],
    "float8_e8m0fnu": _tables["F8_E8M0"],
    "float8_e4m3fnuz": _fnuz(4, 8),
    "float8_e5m2fnuz": _fnuz(5, 16),
}

SIZES: dict[str, int] = {
    **{name: size for name, (_, size) in CODES.items()},
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
}

SAFETENSORS = {
    **{code: name for name, (code, _) in CODES.items() if not name.startswith("complex")},
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "C64": "complex64",
}
"""The code in a safetensors header → the dtype's name."""
CODE_OF = {name: code for code, name in SAFETENSORS.items()}


def numbers(raw: Array, dtype: str) -> Array:
    """Flat numbers of flat bytes: a view where numpy has the dtype, else float32. An unknown dtype comes as bytes."""
    if dtype == "bfloat16":
        wide: Array = raw.view("<u2").astype(np.uint32) << 16
        return wide.view(np.float32)
    table = _BYTES.get(dtype)
    if table is not None:
        return np.asarray(table[raw])
    kind = PLAIN.get(dtype)
    if kind is None:
        return raw
    if raw.ctypes.data % kind.alignment:
        raw = raw.copy()
    return raw.view(kind)


def name_of(kind: np.dtype[Any]) -> str:
    """Tensonde's name for a numpy dtype, also for those that ml_dtypes adds; numpy's own where Tensonde has none."""
    return kind.name


def little(array: Array) -> Array:
    """The same numbers, little endian and in C order; copied only where they are not."""
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
