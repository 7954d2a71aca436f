"""The course of a rank: what it does to its model, step by step, and at which lines. Where ranks that hold one model go different ways, the first step that
differs tells where. Kept as stretches of steps that are alike, so a long training takes no more room than a short one."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tensonde.adapters.torch.seams.vanishing import Ref
from tensonde.program.frames import is_user_file
from tensonde.program.lines import CodeLine, display_path, line_of
from tensonde.program.on_some_ranks import under_rank
from tensonde.program.surroundings import skips, surroundings

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.state import RunState

MOST = 512
"""Deeds of one step, lines and stretches that are told apart; what comes after is left out."""
RARE = ("freeze", "group")
"""Deeds that change what a rank trains."""
SAMPLE = 4
"""Parameters whose version tells whether the program writes weights between two steps."""


class Course:
    def __init__(self, state: RunState) -> None:
        self._state = state
        self._known: dict[tuple[str, int, int], int] = {}
        self._deeds: list[tuple[str, CodeLine | None]] = []
        self._now: list[int] = []
        self._last: tuple[int, ...] = ()
        self._stretches: list[tuple[int, tuple[int, ...]]] = []
        self._whole = True
        self._sample: list[Ref[Tensor]] = []
        self._versions = -1

    def did(self, what: str, place: CodeLine | None) -> None:
        key = (what, id(place[0]), place[1]) if place is not None else (what, 0, 0)  # a code object takes long to hash
        number = self._known.get(key)
        if number is None:
            if len(self._deeds) >= MOST:
                self._whole = False
                return
            number = self._known[key] = len(self._deeds)
            self._deeds.append((what, place))
            if what in RARE and self._state.step:  # the facts are lost where the process is killed
                self._state.session.note("deed", step=self._state.step, **_deed(what, place))
        if len(self._now) < MOST:
            self._now.append(number)

    def passes(self, place: CodeLine | None) -> None:
        """Goes backward."""
        if self._versions >= 0 and self._version() != self._versions:
            self.did("write", place)
        self._versions = -1
        self.did("backward", place)

    def steps(self, place: CodeLine | None) -> None:
        self.did("step", place)
        self._versions = self._version()

    def _version(self) -> int:
        """Counts writes to some parameters."""
        held = [one() for one in self._sample]
        if not held or any(one is None for one in held):
            found = [parameter for _, parameter in islice(self._state.parameters.live(), SAMPLE)]
            self._sample = [Ref(one) for one in found if not one.is_inference()]
            held = [one() for one in self._sample]
        return sum(one._version for one in held if one is not None)

    def stepped(self, step: int) -> None:
        """A step of the training has ended."""
        now = tuple(self._now)
        self._now.clear()
        if now != self._last or not self._stretches:
            if len(self._stretches) >= MOST:
                self._whole = False
                return
            self._last = now
            self._stretches.append((step, now))

    def facts(self) -> dict[str, Any]:
        return {
            "deeds": [_deed(what, place) for what, place in self._deeds],
            "stretches": [{"step": step, "did": list(did)} for step, did in self._stretches],
            "pending": self._now[:],
            "whole": self._whole,
        }


def _deed(what: str, place: CodeLine | None) -> dict[str, Any]:
    path, line = (place[0].co_filename, place[1]) if place is not None else ("", 0)
    known = bool(path) and is_user_file(path)
    return {
        "what": what,
        "line": line_of(place),
        "around": [
            {"file": display_path(path), **{key: one[key] for key in ("what", "line", "end")}}
            for one in surroundings(path, line)
        ]
        if known
        else [],
        "skips": skips(path, line) if known else [],
        "by_rank": under_rank(path, line) if known else 0,
    }
