"""Tensors that were kept, whoever kept them: one interface over dumps, recordings and checkpoints.

`open_source` finds out what a path is. No framework is needed to read any of it.
"""

from sonde.store.sources.entry import Entry
from sonde.store.sources.opening import open_source
from sonde.store.sources.source import TensorSource

__all__ = ["Entry", "TensorSource", "open_source"]
