"""The exception that ended the training: where the user's code was, and in which module."""

from __future__ import annotations

import linecache
from types import TracebackType
from typing import Any

from torch import nn

from sonde.adapters.torch.eager import Eager
from sonde.adapters.torch.frames import display_path, is_ours, is_user


def describe(problem: BaseException, trace: TracebackType | None, eager: Eager) -> dict[str, Any]:
    source = module = None
    walk = trace
    while walk is not None:
        code = walk.tb_frame.f_code
        if code.co_name == "_call_impl" and isinstance(called := walk.tb_frame.f_locals.get("self"), nn.Module):
            entry = eager.entries.get(id(called))
            module = entry.name if entry is not None else type(called).__name__
        if is_user(code):
            line = walk.tb_lineno
            source = {
                "file": display_path(code.co_filename),
                "line": line,
                "code": linecache.getline(code.co_filename, line).strip(),
            }
        walk = walk.tb_next
    return {
        "type": type(problem).__name__,
        "message": str(problem)[:2000],
        "source": source,
        "module": module,
        "step": eager.step,
        "phase": str(eager.phase),
    }


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
