"""What is written to the recording, passed on to the hub; and the stops, which refer to it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from types import FrameType
from typing import Any

import numpy as np

from tensonde.model.moment import Phase
from tensonde.model.site import Site, SourceLine
from tensonde.model.stop import Stop
from tensonde.model.watchpoint import Hit
from tensonde.program.frames import user_frames
from tensonde.program.lines import code_at, display_path
from tensonde.protocol import messages
from tensonde.protocol.outbox import Outbox
from tensonde.store.codec import hit_out, site_out
from tensonde.store.files import plain

MOST_FRAMES = 50


def stack(frame: FrameType | None, node: SourceLine | None = None) -> list[dict[str, Any]]:
    """The user's own frames, innermost first. `node`: the line of what runs, which is another one inside of compiled code only: that has
    no frames of its own, and the frame that was compiled stays at its first line."""
    frames = user_frames(frame)[:MOST_FRAMES]
    inside = []
    if node is not None and frames and node.line != frames[0].f_lineno:
        inside = [{**asdict(node), "function": "compiled code", "path": os.path.abspath(node.file)}]
        if frames[0].f_lineno == frames[0].f_code.co_firstlineno:
            del frames[0]
    return [
        *inside,
        *(
            {
                "file": display_path(one.f_code.co_filename), "line": one.f_lineno, "function": one.f_code.co_name,
                "code": code_at(one.f_code.co_filename, one.f_lineno), "path": os.path.abspath(one.f_code.co_filename),
            }
            for one in frames
        ),
    ]  # fmt: skip


class Feed:
    """The writer's listener (`store.writer.Listener`)."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._hits = 0
        self._recent: deque[tuple[Hit, int]] = deque(maxlen=1000)

    def site(self, site: Site) -> None:
        self._outbox.site(site_out(site))

    def digests(self, rows: np.ndarray[Any, Any], first: int) -> None:
        self._outbox.digests(rows, first)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._outbox.scalars(int(step), {name: float(value) for name, value in values.items()})

    def hit(self, hit: Hit) -> None:
        ord, self._hits = self._hits, self._hits + 1
        self._recent.append((hit, ord))
        self._outbox.keep(messages.Hit, ord=ord, hit=plain(hit_out(hit)))

    def event(self, event: dict[str, Any]) -> None:
        self._outbox.keep(messages.Event, event=plain(event))

    def stopped(self, stop: Stop) -> None:
        ords = {id(hit): ord for hit, ord in self._recent}
        shown = {
            "reason": stop.reason, "step": stop.moment.step, "phase": str(stop.moment.phase), "call": stop.moment.call,
            "site": stop.site.address if stop.site is not None else None,
            "source": asdict(stop.source) if stop.source is not None else None, "modules": list(stop.modules),
            "hits": [{**plain(hit_out(hit)), "ord": ords.get(id(hit), -1)} for hit in stop.hits], "breakpoint": stop.breakpoint,
            "stack": stack(stop.frame, stop.source if stop.moment.phase is Phase.FORWARD else None),
        }  # fmt: skip
        self._outbox.keep(messages.Stopped, stop=shown)

    def resumed(self) -> None:
        self._outbox.keep(messages.Resumed)
