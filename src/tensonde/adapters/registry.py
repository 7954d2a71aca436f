"""The frameworks that have an adapter. Nothing is imported here: most processes of a run never train."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensonde.adapters.adapter import Adapter

ADAPTERS = {"torch": "tensonde.adapters.torch.adapter"}
"""By the module that a program imports when it uses the framework: the module whose `ADAPTER` stands for it."""


def imported() -> str | None:
    """The framework that this process has imported, if any."""
    return next((name for name in ADAPTERS if name in sys.modules), None)


def adapter_of(framework: str) -> Adapter:
    """The adapter of a framework. Imports both."""
    found: Adapter = import_module(ADAPTERS[framework]).ADAPTER
    return found


def chosen() -> Adapter:
    """The adapter of the framework that this process has imported, or else of the first in the list."""
    return adapter_of(imported() or next(iter(ADAPTERS)))
