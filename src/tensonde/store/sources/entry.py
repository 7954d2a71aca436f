"""One tensor of a source: where and when it was seen, and where its bytes are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tensonde.model.site import Address


@dataclass(frozen=True, slots=True)
class Entry:
    """`site` is an address (`blocks.0.attn:out[1]`). `step` is -1 where there are no steps, as in a checkpoint.

    `order` is the place in the execution order of its rank. `file` and `offset` say where the bytes lie, little endian
    and in C order; `file` is None where they do not lie so, and only the source can make them.
    """

    site: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    file: Path | None = None
    offset: int = 0
    step: int = -1
    phase: str = "forward"
    call: int = 0
    rank: int = 0
    order: int = 0
    kind: str = ""
    type: str = ""

    @property
    def name(self) -> str:
        return Address.of(self.site).name

    @property
    def role(self) -> str:
        return Address.of(self.site).role

    @property
    def index(self) -> int | None:
        return Address.of(self.site).index

    @property
    def key(self) -> str:
        """Its name among the tensors of its step: the site, with the call where it is not the first."""
        return self.site if self.call == 0 else f"{self.site}@{self.call}"
