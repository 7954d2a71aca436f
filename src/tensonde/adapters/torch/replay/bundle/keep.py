"""Keeps a step that was run again as a bundle, or notes why it cannot be kept."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tensonde.adapters.torch.replay.bundle.save import save
from tensonde.adapters.torch.replay.bundle.tensors import Unsaveable
from tensonde.adapters.torch.replay.call import Slot
from tensonde.adapters.torch.replay.execute import Outcome, Reenactment
from tensonde.adapters.torch.replay.tape import Tape
from tensonde.adapters.torch.run import batches
from tensonde.adapters.torch.seams.warned import muted
from tensonde.model.trace import Trace

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.state import RunState


def keep(
    state: RunState, tape: Tape, act: Reenactment, outcome: Outcome, wanted: Slot | None, trace: Trace, why: str
) -> None:
    """While everything that the step began with is still as it was."""
    session = state.session
    if not session.options.bundle_bytes:
        return
    began = time.perf_counter_ns()
    try:
        if not tape.unchanged():
            raise Unsaveable("tensors that were changed since the step began")
        batch = batches.latest.facts() if batches.latest is not None else None
        with muted():  # torch changes the filters to list its own functions
            path, size = save(state, act, outcome, wanted, trace, why, batch)
    except (Unsaveable, OSError) as problem:
        reason = f"it has {problem}" if isinstance(problem, Unsaveable) else f"it could not be written: {problem}"
        session.note("bundle_declined", step=trace.step, why=reason)
    except Exception as problem:
        session.guard.contain("saving a bundle", problem)
        session.note("bundle_declined", step=trace.step, why=f"saving it failed: {type(problem).__name__}: {problem}")
    else:
        seconds = (time.perf_counter_ns() - began) * 1e-9
        session.note("bundle_saved", step=trace.step, path=path, bytes=size, seconds=round(seconds, 4))
