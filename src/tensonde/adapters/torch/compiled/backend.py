"""Gets between AOTAutograd and the backend, for every backend that is built on it (inductor, aot_eager, a user's own).

The graphs come after partitioning, forward and backward apart. AOTAutograd's own cache is passed by, because its key
knows nothing of what we add; the backend's cache is keyed by the graph itself, so bare and watched runs never meet there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tensonde.adapters.torch import seams
from tensonde.adapters.torch.compiled.left_out import leave_out
from tensonde.program.imported import when_imported

if TYPE_CHECKING:
    from tensonde.adapters.torch.compiled.graphs import Graphs

Current = Callable[[], "Graphs | None"]


def install(current: Current) -> None:
    """`current` gives the graphs of the session, None where nothing is watched. Waits for the compiler to be imported."""
    when_imported("torch._dynamo.backends.common", lambda module: _wrap(module, current))
    when_imported("torch._dynamo.trace_rules", leave_out)


def _wrap(module: Any, current: Current) -> None:
    original = module.aot_module_simplified

    @functools.wraps(original)
    def aot_module_simplified(mod: Any, args: Any, fw_compiler: Any, bw_compiler: Any = None, **kwargs: Any) -> Any:
        graphs = current()
        if graphs is None:
            return original(mod, args, fw_compiler, bw_compiler, **kwargs)
        from tensonde.adapters.torch.compiled import asked, given

        try:
            region = graphs.region(_backend(fw_compiler))
            region.given = given.of_dynamo(mod, region.names)
            beside = graphs.beside(region, mod)
        except Exception as problem:  # the compiler's inside is not what it was: it goes on without us
            graphs.guard.contain("looking at compiled code", problem)
            return original(mod, args, fw_compiler, bw_compiler, **kwargs)
        inference = kwargs.pop("inference_compiler", None) or fw_compiler

        def watched(compiler: Any, *, backward: bool = False) -> Any:
            def compile(gm: Any, inputs: Any) -> Any:
                return graphs.compile(region, compiler, gm, inputs, backward=backward)

            return compile

        partition = kwargs.get("partition_fn")
        if partition is not None:
            kwargs["partition_fn"] = asked.noting(partition, lambda forward: setattr(region, "asked", forward))
        backward = watched(bw_compiler or fw_compiler, backward=True)
        made = original(
            mod,
            args,
            watched(fw_compiler),
            torch._dynamo.disable(backward),
            inference_compiler=watched(inference),
            **kwargs,
        )
        return made if beside is None else beside(made)

    seams.put(module, "aot_module_simplified", aot_module_simplified, "see the graphs that a backend compiles")


def _backend(compiler: Any) -> str:
    inner = getattr(compiler, "compiler_fn", compiler)
    inner = getattr(inner, "func", inner)
    module = str(getattr(inner, "__module__", ""))
    if module.startswith("torch._inductor"):
        return "inductor"
    return "aot_eager" if "nop" in str(getattr(inner, "__name__", "")) else str(getattr(inner, "__name__", "backend"))
