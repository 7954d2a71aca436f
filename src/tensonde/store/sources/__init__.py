"""Kept tensors of any origin: one interface over dumps, recordings and checkpoints.

`open_source` finds out what a path is. No framework is needed to read any of it.
"""

from tensonde.store.sources.entry import Entry
from tensonde.store.sources.opening import open_source
from tensonde.store.sources.source import TensorSource

__all__ = ["Entry", "TensorSource", "open_source"]
