"""One pause of the training, with its reason, and how it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal

from tensonde.model.moment import Moment
from tensonde.model.site import Site, SourceLine
from tensonde.model.watchpoint import Hit

Reason = Literal["entry", "breakpoint", "hit", "step", "next", "until", "finish", "pause", "line", "code", "exit"]


@dataclass(frozen=True, slots=True)
class Stop:
    """`tensor` is the framework's tensor at `site`; `frame` the user's Python frame; both None where there is none.

    `modules` is the stack of module names, outermost first. `source` is the user's line that runs now,
    or, in the backward pass, the forward line that made what is being differentiated.
    """

    reason: Reason
    moment: Moment
    site: Site | None = None
    tensor: Any = None
    modules: tuple[str, ...] = ()
    source: SourceLine | None = None
    frame: FrameType | None = None
    hits: tuple[Hit, ...] = ()
    breakpoint: int | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """How the training goes on after a stop.

    continue; step `count` steps; next module; next op; until a site; finish the current module; quit.
    """

    kind: Literal["continue", "step", "next", "nextop", "until", "finish", "quit"] = "continue"
    count: int = 1
    sites: str = ""


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """Stops at sites (a pattern) or at a source line, when the condition, if any, holds."""

    id: int
    sites: str = ""
    file: str = ""
    line: int = 0
    condition: str = ""
    once: bool = False
    hit_count: int = field(default=0, compare=False)

    def __str__(self) -> str:
        where = self.sites or f"{self.file}:{self.line}"
        return f"{where} if {self.condition}" if self.condition else where
