"""The frameworks that have an adapter. Nothing is imported here: most processes of a run never train."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensonde.adapters.adapter import Adapter

ADAPTERS = {"torch": "tensonde.adapters.torch.adapter", "mindspore": "tensonde.adapters.mindspore.adapter"}
"""By the module that a program imports when it uses the framework: the module whose `ADAPTER` stands for it."""


def installed() -> list[str]:
    """The frameworks that a program could import here. A folder that happens to be called so is none."""
    specs = {name: find_spec(name) for name in ADAPTERS}
    return [name for name, spec in specs.items() if spec is not None and spec.origin is not None]


def imported() -> str | None:
    """The framework that this process has imported, if any."""
    return next((name for name in ADAPTERS if name in sys.modules), None)


def adapter_of(framework: str) -> Adapter:
    """The adapter of a framework. Imports both."""
    found: Adapter = import_module(ADAPTERS[framework]).ADAPTER
    return found


def chosen() -> Adapter:
    """The adapter of the framework that trains, or that this process has imported, or else of the first in the list."""
    loaded = [name for name, module in ADAPTERS.items() if name in sys.modules and module in sys.modules]
    training = [name for name in loaded if len(loaded) > 1 and adapter_of(name).current() is not None]
    return adapter_of(training[0] if training else imported() or next(iter(ADAPTERS)))
