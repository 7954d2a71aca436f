"""The training that is observed in this process, if there is one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tensonde.adapters.torch.seams.lifted import PATCHES

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.state import RunState


class Current:
    watcher: Any = None
    """A `Watcher`. Not typed, so that every room can import this file; `install.current` gives it with its type."""
    pending = False
    """The session is to be opened when the training begins."""


CURRENT = Current()
"""One per process, as there is one torch."""


def observed(state: RunState) -> bool:
    """Whether this training is observed now. False while it rests, and while Tensonde itself calls modules."""
    return not PATCHES.out and CURRENT.watcher is not None and CURRENT.watcher.state is state


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Nothing is observed meanwhile: Tensonde itself calls the user's modules."""
    before = CURRENT.watcher, CURRENT.pending
    CURRENT.watcher, CURRENT.pending = None, False
    try:
        yield
    finally:
        CURRENT.watcher, CURRENT.pending = before
