"""Tensonde, the debugger for neural-network training.

`tensonde run train.py` needs nothing of this. In a script it is optional:

    attach(model, optimizer)      names for what Tensonde would otherwise have to guess
    watch("**:grad", "norm > 1e3")  the same language as on the command line
    breakpoint()                  stop here, if a debugger is attached
    print("attn", scores)         strings and tensors, also from compiled code, forward and backward
    inspect(fn, *args)            every intermediate and gradient of one call
    view(recording)               a recording or a trace, in a notebook
    launch_blocking()             every op synchronous, so that an error surfaces at its line
    report("accuracy", 0.9)       a number of your own, in the recording and for `tensonde tune`

    hook(tensor, fn), hook_backward(module, fn), HookBackward(fn)   look at gradients, or change them
    loop(loader, callbacks=...)   callbacks in a plain loop; lightning(cb) and transformers(cb) in theirs
    train                         Model, callbacks, metrics, schedules, tune

Importing Tensonde imports neither a framework nor the server.
"""

from typing import TYPE_CHECKING, Any

import tensonde.watch  # noqa: F401  first the package, so that its import cannot take the function's name later
from tensonde.api import attach, breakpoint, inspect, launch_blocking, print, report, view, watch
from tensonde.version import __version__

if TYPE_CHECKING:
    from tensonde.train.hooks import HookBackward as HookBackward
    from tensonde.train.hooks import hook as hook
    from tensonde.train.hooks import hook_backward as hook_backward
    from tensonde.train.lightning import lightning as lightning
    from tensonde.train.loop import loop as loop
    from tensonde.train.transformers import transformers as transformers

_COMPANIONS = {
    "HookBackward": "tensonde.train.hooks",
    "hook": "tensonde.train.hooks",
    "hook_backward": "tensonde.train.hooks",
    "lightning": "tensonde.train.lightning",
    "loop": "tensonde.train.loop",
    "transformers": "tensonde.train.transformers",
}
"""Loaded when they are asked for: they stand on torch."""

__all__ = [
    "__version__",
    "attach",
    "watch",
    "breakpoint",
    "print",
    "inspect",
    "launch_blocking",
    "report",
    "view",
    *_COMPANIONS,
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "train":
        return import_module("tensonde.train")
    if name in _COMPANIONS:
        return getattr(import_module(_COMPANIONS[name]), name)
    raise AttributeError(f"module 'tensonde' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext tensonde`."""
    from tensonde.notebook.magic import load

    load(shell)
