"""The frameworks that have an adapter. Nothing is imported here: most processes of a run never train."""

from __future__ import annotations

import sys

ADAPTERS = {"torch": "tensonde.adapters.torch.install"}
"""By the module that a program imports when it uses the framework: the module of the adapter's entry.

An entry has `install(open)`, called once when the framework is imported. `open()` is called when the training begins.
"""


def imported() -> str | None:
    """The framework that this process has imported, if any."""
    return next((name for name in ADAPTERS if name in sys.modules), None)
