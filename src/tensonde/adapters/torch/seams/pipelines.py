"""Stages of `torch.distributed.pipelining` are run once before the first step, on tensors without values, so that each knows the shapes that it gets. That is no
part of the training: what such a run computes is whatever its memory held."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tensonde.adapters.torch import seams
from tensonde.adapters.torch.seams.current import suspended
from tensonde.adapters.torch.seams.function_mode import Aside
from tensonde.program.imported import when_imported

_WHY = "pass over what a pipeline computes without values"


def observe_pipelines() -> None:
    """Once in a process. What is sent to find the shapes out stays observed: ranks may wait for it in vain."""
    when_imported("torch.distributed.pipelining.stage", _observe)


def _observe(module: Any) -> None:
    kind = getattr(module, "PipelineStage", None)
    for name in ("_compute_outputs", "_compute_input_grads"):
        original = getattr(kind, name, None)
        if original is not None:
            seams.put(kind, name, _passed_over(original), _WHY)
    inferring = getattr(kind, "_backward_metadata_inference", None)
    if inferring is not None:

        @functools.wraps(inferring)
        def infer(self: Any, loss_fn: Any = None, *args: Any, **kwargs: Any) -> Any:
            return inferring(self, _passed_over(loss_fn) if callable(loss_fn) else loss_fn, *args, **kwargs)

        seams.put(kind, "_backward_metadata_inference", infer, _WHY)


def _passed_over(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original, updated=())
    def without_values(*args: Any, **kwargs: Any) -> Any:
        with suspended(), Aside():
            return original(*args, **kwargs)

    return without_values
