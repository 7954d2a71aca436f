"""What is shown when the training stops: why, when, where, and what the tensor there looks like."""

from __future__ import annotations

from tensonde.debugger.numbers import digest_at, digest_line, kind_of, short
from tensonde.debugger.terminal import Piece, Terminal
from tensonde.model.moment import Phase
from tensonde.model.stop import Stop
from tensonde.model.watchpoint import Hit
from tensonde.session.inspector import Inspector

REASONS = {
    "entry": "the training begins",
    "next": "next",
    "until": "until",
    "finish": "finished the module",
    "pause": "paused",
    "code": "tensonde.breakpoint() in the code",
    "exit": "the training is over",
    "hit": "watchpoint hit",
    "line": "line",
    "breakpoint": "breakpoint",
}


def show_stop(terminal: Terminal, stop: Stop, inspector: Inspector) -> None:
    terminal.line((f"● {reason(stop)}", "title"))
    for hit in stop.hits:
        terminal.line("  ", *hit_line(hit))
    place: list[Piece] = [f"step {stop.moment.step} · {stop.moment.phase}"]
    site = stop.site
    if site is not None:
        place += [" · ", (site.address, "site"), f"  {kind_of(site.dtype, shape_at(stop))}"]
        if site.type:
            place.append((f"  {site.type}", "dim"))
    elif stop.modules:
        place += [" · in ", (stop.modules[-1], "site")]
    terminal.line(*place)
    if site is not None:
        row = digest_at(inspector, site)
        if row is not None:
            terminal.line("  ", *digest_line(row))
    if stop.source is not None:
        made = "forward line that made it: " if is_backward(stop) else ""
        terminal.line((f"  {made}{stop.source}", "dim"), "  ", (stop.source.code, "code"))


def reason(stop: Stop) -> str:
    if stop.breakpoint is not None:
        return f"breakpoint {stop.breakpoint}"
    if stop.reason == "step":
        return f"end of step {stop.moment.step - 1}"
    return REASONS[stop.reason]


def is_backward(stop: Stop) -> bool:
    """What is shown as source is a line of the forward pass."""
    return stop.moment.phase is Phase.BACKWARD and stop.site is not None


def shape_at(stop: Stop) -> tuple[int, ...]:
    """Of the tensor itself, as the shape may change from call to call."""
    shape = getattr(stop.tensor, "shape", None)
    assert stop.site is not None
    return tuple(shape) if shape is not None else stop.site.shape


def hit_line(hit: Hit) -> list[Piece]:
    """The rule, and of each of its terms what was found and what was set."""
    pieces: list[Piece] = [f"watchpoint {hit.watchpoint}: ", (hit.site, "site"), f" {hit.condition}"]
    preset, actual = hit.met()
    shown = [f"{name} is {short(value)}" for name, value in actual.items()]
    limits = [f"{name} {short(value)}" for name, value in preset.items()]
    if shown:
        pieces.append((f"  {', '.join(shown)}", "bad"))
    if limits:
        pieces.append(f"  (set: {', '.join(limits)})")
    pieces.append((f"  step {hit.moment.step}, {hit.moment.phase}", "dim"))
    return pieces
