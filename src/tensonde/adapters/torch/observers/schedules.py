"""Learning-rate schedulers: how often they were stepped, in which order, and the numbers that they go by."""

from __future__ import annotations

from types import FrameType
from typing import Any

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.wrappers import optimizer_behind
from tensonde.program import queries
from tensonde.program.lines import CodeLine, line_at, line_of

STEPPED: dict[int, dict[str, Any]] = {}
GIVEN: dict[int, dict[str, float]] = {}
"""Both by the scheduler's number: how it was stepped, and the user's variables that it was made with."""


def given(scheduler: Any, frame: FrameType | None) -> None:
    """A scheduler is being made: which of the user's numbers is it given?"""
    place = KNOWN.made.place(scheduler)
    while frame is not None and place is not None and frame.f_code is not place[0]:
        frame = frame.f_back
    if frame is None or place is None:
        return
    known = {**frame.f_globals, **frame.f_locals} if frame.f_locals is not frame.f_globals else frame.f_globals
    GIVEN[KNOWN.number(scheduler)] = {
        name: known[name]
        for name in queries.names_at(place[0].co_filename, place[1])
        if isinstance(known.get(name), int | float) and not isinstance(known.get(name), bool)
    }


def stepped(scheduler: Any, place_of: Any, args: tuple[Any, ...] = ()) -> None:
    """`scheduler.step()` was called by the user, with the value that it watches if it is of that kind."""
    number = KNOWN.number(scheduler)
    seen = STEPPED.get(number)
    if seen is None:
        place: CodeLine | None = place_of()
        optimizer = optimizer_behind(scheduler.optimizer)
        done = KNOWN.number(optimizer) in KNOWN.stepped or bool(optimizer and optimizer.state)  # resumed
        STEPPED[number] = {"steps": 1, "before_optimizer": not done, "line": line_of(place)}
    else:
        seen["steps"] += 1
    mode = getattr(scheduler, "mode", None)
    if mode in ("min", "max") and args:
        value = float(args[0])
        watched = STEPPED[number].setdefault("watched", {"mode": mode, "first": value, "improved": 0, "worsened": 0})
        if "last" in watched and value != watched["last"]:
            watched["improved" if (value < watched["last"]) == (mode == "min") else "worsened"] += 1
        watched["last"] = value


def scheduler_facts(scheduler: Any) -> dict[str, Any]:
    """Without what changes from step to step, which is in `STEPPED`."""
    numbers = {
        name: value
        for name, value in vars(scheduler).items()
        if isinstance(value, int | float) and not isinstance(value, bool) and not name.startswith("_")
    }
    place = KNOWN.made.place(scheduler)
    optimizer = optimizer_behind(getattr(scheduler, "optimizer", None))
    return {
        "type": type(scheduler).__name__,
        "made": line_of(place),
        "optimizer": KNOWN.number(optimizer),
        "base_lrs": [float(lr) for lr in getattr(scheduler, "base_lrs", [])][:16],
        "numbers": numbers,
        "names": _names(scheduler, place),
    }


def _names(scheduler: Any, place: CodeLine | None) -> dict[str, Any]:
    """Numbers that its functions or its construction take from the user's variables, and where those get their
    value.
    """
    found: dict[str, Any] = {}
    if place is None:
        return found
    scopes: dict[str, Any] = {}
    path = place[0].co_filename
    for function in getattr(scheduler, "lr_lambdas", []):
        code = getattr(function, "__code__", None)
        if code is not None:
            scope = {name: function.__globals__.get(name) for name in code.co_names}
            cells = function.__closure__ or ()
            scope.update({name: _content(cell) for name, cell in zip(code.co_freevars, cells, strict=False)})
            scopes.update(scope)
    scopes = {**GIVEN.get(KNOWN.number(scheduler), {}), **scopes}
    for name, value in scopes.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = queries.assignment(path, name)
            found[name] = {"value": value, "line": line_at(path, number) if number else None}
    return found


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None
