"""What Tensonde does beside the training, on its own account: its failures stay Tensonde's, its time is counted,
and no mode sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensonde.adapters.torch.seams.function_mode import unseen

if TYPE_CHECKING:
    from tensonde.session.session import Session


def charged(session: Session, what: str, act: Callable[..., Any], *args: Any) -> Any:
    """`what` it is, for the note of a failure; None is given then."""
    mark = session.clock()
    try:
        with unseen():
            return act(*args)
    except Exception as problem:
        session.guard.contain(what, problem)
        return None
    finally:
        session.spent_since(mark)
