"""What Tensonde does beside the training, on its own account: its failures stay Tensonde's, its time is counted,
and no mode sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensonde.adapters.torch.seams.function_mode import unseen

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.eager import Eager


def charged(eager: Eager, what: str, act: Callable[..., Any], *args: Any) -> Any:
    """`what` it is, for the note of a failure; None is given then."""
    mark = eager.session.clock()
    try:
        with unseen():
            return act(*args)
    except Exception as problem:
        eager.session.guard.contain(what, problem)
        return None
    finally:
        eager.session.spent_since(mark)
