"""Which program made a bundle, and under which settings: what another process needs to build the model again.

Paths are relative to the working directory, so that bundle and program can be moved together.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from typing import Any

import torch

from tensonde.adapters.torch.precision import matmul_precision
from tensonde.program.frames import is_user
from tensonde.program.lines import working_directory

MOST_FILES = 500
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "CUBLAS_WORKSPACE_CONFIG")  # fmt: skip


def program() -> dict[str, Any]:
    """The script or module, its arguments, and a checksum of every file of the user's that it has loaded."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    path = getattr(main, "__file__", None) or (sys.argv[0] if sys.argv and os.path.isfile(sys.argv[0]) else None)
    return {
        "script": relative(path) if path else None,
        "module": spec.name if spec is not None and spec.name != "__main__" else None,
        "argv": list(sys.argv[1:]),
        "python": platform.python_version(),
        "files": _files(path),
    }


def relative(path: str) -> str:
    try:
        return os.path.relpath(path)
    except (ValueError, OSError):
        return path


def _files(script: str | None) -> dict[str, str]:
    paths = {script} if script else set()
    beside = os.path.dirname(os.path.abspath(script)) if script else working_directory()
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".py") and len(paths) < MOST_FILES and _is_own(path, beside):
            paths.add(path)
    found = {}
    for path in sorted(paths):
        checksum = checksum_of(path)
        if checksum:
            found[relative(path)] = checksum
    return found


def _is_own(path: str, beside: str) -> bool:
    """The user's, and part of this program: under the working directory or beside the script."""
    here = os.path.abspath(path)
    return here.startswith((working_directory() + os.sep, beside + os.sep)) and is_user(compile("", path, "exec"))


def checksum_of(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def settings() -> dict[str, Any]:
    """What decides about the last bits."""
    return {
        "threads": torch.get_num_threads(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "matmul_precision": matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "machine": platform.machine(),
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def apply(wanted: Any) -> None:
    """As far as this machine and torch allow; what cannot be so is said when the results are compared."""
    threads, precision = wanted.get("threads"), wanted.get("matmul_precision")
    if type(threads) is int and 0 < threads <= 1024:
        torch.set_num_threads(threads)
    if precision in ("highest", "high", "medium"):
        torch.set_float32_matmul_precision(precision)


def differences(wanted: Any, framework: str) -> list[str]:
    """Settings of this process that are not those of the bundle."""
    here = settings()
    found = [
        f"{name} {here[name]!r} instead of {wanted[name]!r}"
        for name in ("threads", "default_dtype", "matmul_precision", "deterministic", "cpu", "machine")
        if name in wanted and wanted[name] != here[name]
    ]
    if framework != f"torch {torch.__version__}":
        found.insert(0, f"torch {torch.__version__} instead of {framework}")
    return found
