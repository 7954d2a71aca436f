"""The exception that ended the training, described and with Tensonde's frames taken out."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from torch import nn

from tensonde.adapters.early import failed_early
from tensonde.adapters.torch.memory.history import History
from tensonde.adapters.torch.postmortem.facts import facts_of
from tensonde.adapters.torch.postmortem.latest import LatestCall
from tensonde.adapters.torch.postmortem.traceback import FailedOp, Failure
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.install import _original_call
from tensonde.program.frames import is_ours
from tensonde.program.lines import to_json


def describe(
    problem: BaseException,
    trace: TracebackType | None,
    state: RunState,
    latest: LatestCall,
    failed_op: FailedOp,
    memory: History,
) -> dict[str, Any]:
    """Facts for the event `exception`; plain JSON, which keeps nothing of the program alive."""
    failure = Failure(problem, trace, state, latest, failed_op, memory)
    return {
        "type": type(problem).__name__,
        "message": str(problem)[:2000],
        "source": to_json(failure.user[-1].source) if failure.user else None,
        "module": failure.calls[-1].name if failure.calls else None,
        "step": state.step,
        "phase": _phase(failure),
        **({} if isinstance(problem, KeyboardInterrupt) else facts_of(failure)),
    }


def concerns_training(problem: BaseException, trace: TracebackType | None) -> bool:
    """Of a program that ends before a module is called: its own code failed, and it trains with torch."""
    return failed_early(problem, Failure.places_of(trace), "torch")


def _phase(failure: Failure) -> str:
    """By the traceback: the adapter has left the pass by the time that the exception is noted."""
    if any(place.function == "_engine_run_backward" for place in failure.places):
        return "backward"
    return "optimizer" if failure.inside("torch/optim/") else "forward"


def trim(problem: BaseException) -> None:
    """Takes Tensonde's frames out of an exception's traceback, and of those that it came from."""
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
    """The same traceback, less the frames that Tensonde put between the user and torch, and less the detour through
    torch's override protocol that a function takes because a mode of ours is on. Where ours stood in the place of
    `_wrapped_call_impl`, that one is there again."""
    frames: list[TracebackType] = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    kept: list[TracebackType] = []
    for place, frame in enumerate(frames):
        code = frame.tb_frame.f_code
        if not is_ours(code):
            if code is nn.Module._call_impl.__code__ and place and is_ours(frames[place - 1].tb_frame.f_code):
                kept += _wrapped_call()
            kept.append(frame)
        elif place and kept and kept[-1] is frames[place - 1] and _overriding(kept[-1]):
            kept.pop()
            again = next((later for later in frames[place:] if not is_ours(later.tb_frame.f_code)), None)
            if kept and again is not None and kept[-1].tb_frame.f_code is again.tb_frame.f_code:
                kept.pop()
    for frame, following in zip(kept, [*kept[1:], None], strict=False):
        frame.tb_next = following
    return kept[0] if kept else None


def _overriding(trace: TracebackType) -> bool:
    code = trace.tb_frame.f_code
    return code.co_name == "handle_torch_function" and code.co_filename.endswith("overrides.py")


def _wrapped_call() -> list[TracebackType]:
    """The frame in which torch's own `Module.__call__` calls `_call_impl`: that of a call which only raises."""

    class Raising:
        _compiled_call_impl = None

        def _call_impl(self) -> None:
            raise LookupError

    try:
        _original_call(Raising())
    except LookupError as problem:
        trace = problem.__traceback__.tb_next if problem.__traceback__ is not None else None
        return [trace] if trace is not None else []
    return []
