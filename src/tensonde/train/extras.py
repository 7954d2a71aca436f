"""Libraries that only some of the companions need: where one is missing, one sentence says how to get it."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from tensonde.errors import UsageError


def need(module: str, *, extra: str, what: str) -> Any:
    """The module, which the extra `tensonde[extra]` brings; `what` says who wants it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as problem:
        missing = (problem.name or module).partition(".")[0]
        raise UsageError(
            f"{what} needs {missing}, which is not installed; run: pip install 'tensonde[{extra}]'"
        ) from None


def main_process() -> bool:
    """Whether this process speaks for the training: rank 0, or the only one."""
    return os.environ.get("RANK", "0") == "0" and os.environ.get("SLURM_PROCID", "0") == "0"
