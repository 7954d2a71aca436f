"""What the adapter needs of MindSpore beyond its public interface, and which releases of MindSpore and numpy it works with."""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Any

import mindspore
import numpy as np

from tensonde.errors import UsageError

OLDEST = (2, 10)


def check() -> None:
    """Raises UsageError, which becomes one line; the program then runs unwatched."""
    version = tuple(int(part) for part in mindspore.__version__.split(".")[:2])
    if version < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UsageError(f"MindSpore {mindspore.__version__} is too old: Tensonde needs {oldest} or newer")
    if int(np.__version__.split(".")[0]) >= 2 and version <= (2, 10):
        raise UsageError(
            f"MindSpore {mindspore.__version__} does not work with numpy {np.__version__}: its ops need numpy below 2"
        )


def executor() -> Any:
    """The class whose one object runs PyNative mode, or None."""
    for name in ("mindspore.graph.api",):
        try:
            found = getattr(import_module(name), "_PyNativeExecutor", None)
        except ImportError:
            continue
        if found is not None:
            return found
    return None


def jit_executor() -> Any:
    """The class whose objects are compiled functions, or None."""
    try:
        return getattr(import_module("mindspore.graph.api"), "_JitExecutor", None)
    except ImportError:
        return None


def set_mode(mode: int) -> None:
    """As `mindspore.set_context(mode=...)`. What a derivative in PyNative mode leaves behind is put back with GRAPH_MODE."""
    mindspore.context._context().set_mode(mode)
    if mode == mindspore.GRAPH_MODE:
        with contextlib.suppress(AttributeError, ImportError):
            import_module("mindspore._c_expression").MSContext.get_instance()._set_not_convert_jit(False)


def abandon_pass() -> None:
    """A forward pass in PyNative mode was left before its end."""
    import_module("mindspore.graph.api")._pynative_executor.clear_res()


NEEDED = {
    "_PyNativeExecutor.grad": "gradients and losses are not seen",
    "_PyNativeExecutor.new_graph": "training and evaluation are not told apart",
    "_PyNativeExecutor.end_graph": "losses are not seen",
    "MsDispatchMode": "ops are not traced, and no op can be stopped at",
}


def missing() -> dict[str, str]:
    """Names that are gone in this release, and what happens without them."""
    found = {}
    for name, consequence in NEEDED.items():
        owner, _, attribute = name.rpartition(".")
        there = hasattr(executor(), attribute) if owner else hasattr(mindspore, attribute)
        if not there:
            found[name] = consequence
    return found
