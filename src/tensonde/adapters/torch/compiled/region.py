"""A piece of compiled code: what its two graphs have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.fx import GraphModule

from tensonde.adapters.torch.compiled.given import Given
from tensonde.adapters.torch.compiled.names import Names
from tensonde.adapters.torch.compiled.overwritten import Overwritten
from tensonde.adapters.torch.compiled.uncompiled import Uncompiled
from tensonde.model.site import SourceLine

if TYPE_CHECKING:
    from tensonde.adapters.torch.compiled.watched import CompiledGraph


class Region:
    """One piece of code that was compiled: its forward (or only) graph, and its backward one."""

    def __init__(self, number: int, names: Names, source: SourceLine | None, backend: str, home: str) -> None:
        self.number, self.names, self.source, self.backend = number, names, source, backend
        self.home = home
        """The module whose own code this is; "" for that of a function, and of the module that was compiled."""
        self.guards: list[str] = []
        self.given: list[Given | None] = []
        """What its forward graph is given."""
        self.reason = ""
        """Why this code was compiled once more."""
        self.uncompiled: Uncompiled | None = None
        self.asked: GraphModule | None = None
        """The forward graph before the backend's own passes, where it has such."""
        self.forward: CompiledGraph | None = None
        self.backward: CompiledGraph | None = None
        self.overwritten = Overwritten()
