"""An error of a device that surfaced where the program next waited for it: which op it was."""

from __future__ import annotations

from typing import Any

import torch

from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.adapters.torch.script.blocking import blocking
from tensonde.program.lines import to_json

MESSAGES = r"device-side assert|asynchronously reported|illegal memory access|unspecified launch failure"


def late_error(failure: Failure) -> dict[str, Any] | None:
    """None where every op was waited for: then the line that raised is the right one. `lost`: the device cannot be used any more, as
    CUDA's after such an error, so nothing could be run again."""
    if blocking():
        return None
    try:
        torch.accelerator.synchronize()
    except RuntimeError:
        return {"lost": True}
    found = failure.failed_op()
    if found is None:
        return {"lost": False}
    op, step = found
    return {
        "lost": False,
        "op": op.op,
        "module": op.module,
        "line": to_json(op.source),
        "step": step,
        "error": op.error,
    }
