"""The exception that ended the training, described and with Sonde's frames taken out."""

from __future__ import annotations

import os
import sysconfig
from types import TracebackType
from typing import Any

from sonde.adapters.torch.eager import Eager
from sonde.adapters.torch.explain.facts import facts_of
from sonde.adapters.torch.explain.traceback import Failure, as_json
from sonde.adapters.torch.frames import is_ours


def describe(problem: BaseException, trace: TracebackType | None, eager: Eager) -> dict[str, Any]:
    """Facts for the event `exception`; plain JSON, which keeps nothing of the program alive."""
    failure = Failure(problem, trace, eager)
    return {
        "type": type(problem).__name__,
        "message": str(problem)[:2000],
        "source": as_json(failure.user[-1].source) if failure.user else None,
        "module": failure.calls[-1].name if failure.calls else None,
        "step": eager.step,
        "phase": _phase(failure),
        **({} if isinstance(problem, KeyboardInterrupt) else facts_of(failure)),
    }


def concerns_training(problem: BaseException, trace: TracebackType | None) -> bool:
    """Raised through torch from the user's own code: of a program that only imports torch, Sonde says nothing.

    Launchers are programs of that kind; they stand among the environment's scripts.
    """
    scripts = sysconfig.get_path("scripts") + os.sep
    places = Failure.places_of(trace)
    mine = [place for place in places if place.is_user and not os.path.abspath(place.path).startswith(scripts)]
    return (
        bool(mine)
        and isinstance(problem, Exception)
        and any("torch" in place.path for place in places if not place.is_user)
    )


def _phase(failure: Failure) -> str:
    """By the traceback: the adapter has left the pass by the time that the exception is noted."""
    if any(place.function == "_engine_run_backward" for place in failure.places):
        return "backward"
    return "optimizer" if failure.inside("torch/optim/") else "forward"


def trim(problem: BaseException) -> None:
    """Takes Sonde's frames out of an exception's traceback, and of those that it came from."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [problem]
    while waiting:
        found = waiting.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        found.__traceback__ = without_our_frames(found.__traceback__)
        waiting += [found.__cause__, found.__context__]
        if isinstance(found, BaseExceptionGroup):
            waiting += found.exceptions


def without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    """The same traceback, less the frames that Sonde put between the user and torch."""
    while trace is not None and is_ours(trace.tb_frame.f_code):
        trace = trace.tb_next
    walk = trace
    while walk is not None:
        following = walk.tb_next
        while following is not None and is_ours(following.tb_frame.f_code):
            following = following.tb_next
        walk.tb_next = following
        walk = following
    return trace
