"""The ranks of a run in a terminal: what each does, and how long one may still wait for another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tensonde.debugger.terminal import Terminal

State = Mapping[str, Any]
HELP = "several ranks go on together; `ranks` lists them, `rank 1` looks at another, `alone step` moves only this one where that is safe"


def show_ranks(terminal: Terminal, states: Iterable[State], here: str) -> None:
    rows = []
    for state in states:
        stop = state.get("stop") or {}
        where = " at ".join(str(word) for word in (stop.get("reason"), stop.get("site")) if word)
        rows.append(
            (
                "→" if state["name"] == here else "",
                state["name"],
                state["state"],
                str(state["step"]),
                where,
                waits(state),
            )
        )
    terminal.table(rows, titles=("", "rank", "state", "step", "stop", "waits"))


def waits(state: State) -> str:
    """The collective that a rank is in, and when its back end gives up; "" where it is in none."""
    waiting = (state.get("together") or {}).get("waiting")
    if not waiting:
        return ""
    at = f" at {waiting['line']}" if waiting.get("line") else ""
    left = waiting.get("left")
    return f"in {waiting['what']}{at}" + (
        f"; {state['together']['backend']} gives up in {left:.0f} s" if left is not None else ""
    )
