"""Autograd graphs that outlive their use.

A token is hung on the node that made a root's output; it dies with the node. So the number of graphs that are
alive is known exactly, at a microsecond a call, whoever keeps them (a running sum, a list, an attribute).
"""

from __future__ import annotations

import os
import sys
import weakref
from types import CodeType, FrameType
from typing import Any

from torch import Tensor

from tensonde.adapters.torch.observers.modes import evaluation_line
from tensonde.adapters.torch.run import batches
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.program import queries
from tensonde.program.frames import is_user
from tensonde.program.lines import line_at

Site = tuple[str, CodeType, int]
"""A root's name, and the user's line that calls it."""
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
KEY = "tensonde.graph"
MANY = 8
MOST = 4096
WALKED = range(3, 15)
"""Backward passes that are looked at for the graphs that they use."""


class Token:
    __slots__ = ("__weakref__", "batch", "step", "used")

    def __init__(self, step: int) -> None:
        self.step = step
        self.batch = weakref.ref(batches.latest) if batches.latest is not None else None
        """What a loader had given last."""
        self.used = False
        """A backward pass has gone through it."""


class Graphs:
    def __init__(self) -> None:
        self.tokens: weakref.WeakSet[Token] = weakref.WeakSet()
        self.unused_peak = 0
        self.old_counts: list[tuple[int, int]] = []
        self.holder: dict[str, Any] | None = None
        self.line: dict[str, Any] | None = None
        self.rss: list[tuple[int, int]] = []
        """Megabytes of memory that the process has, by step."""
        self.died: dict[Site, int] = {}
        """Calls of a root, by who and where, whose graph was gone before any backward pass: nobody trains on them."""
        self.lived: set[Site] = set()
        self._pending: list[tuple[weakref.ref[Token], Site | None]] = []
        self.spent_peak = 0
        """Earlier steps whose graphs are alive at once though a backward pass has used them, of those looked at. Several graphs of one step
        count once: a cycle of references may keep a step until the garbage collector comes."""
        self._backwards = 0
        self._searched = 0
        self._peak = 0
        self._episodes = False
        """A backward pass has used many graphs at once."""
        self.wasted_peak = 0

    def made(self, out: Any, step: int, site: Site | None) -> None:
        """A root has given `out`; `site` is given where its mode matters."""
        for tensor in tensors_in(out)[:1]:
            node = tensor.grad_fn
            if node is not None and len(self.tokens) < MOST:
                token = Token(step)
                node.metadata[KEY] = token
                self.tokens.add(token)
                self._pending.append((weakref.ref(token), site))
        if len(self._pending) >= MANY:
            self._tell()
            self._pending = [(ref, site) for ref, site in self._pending if ref() is not None]
            tokens = [held for ref, _ in self._pending if (held := ref()) is not None]
            alive = 0 if _of_one_batch(tokens) else len(tokens)
            self._peak = max(self._peak, alive)
            if alive > self.unused_peak:
                self.unused_peak = alive
                if alive >= MANY and (alive & (alive - 1)) == 0:
                    self._search()

    def _tell(self) -> None:
        """Notes whose graphs are gone."""
        for ref, site in self._pending:
            if site is None:
                continue
            if ref() is not None:
                self.lived.add(site)
            elif site in self.died or len(self.died) < 64:
                self.died[site] = self.died.get(site, 0) + 1

    def backward(self, losses: list[Tensor]) -> None:
        """A backward pass begins: what waited for it is used, or was kept for nothing."""
        self._tell()
        if self._backwards in WALKED:
            self._reached(losses, MOST)
        self._backwards += 1
        pending = [token for ref, _ in self._pending if (token := ref()) is not None]
        if len(pending) >= MANY and self._searched < 8 and not _of_one_batch(pending):
            reached = self._reached(losses, len(pending))
            if reached is not None and reached < len(pending) / 2:
                self.wasted_peak = max(self.wasted_peak, len(pending) - reached)
            else:
                self._episodes = True
                self.holder = self.line = None  # an episode, used as a whole
        self._peak = 0
        self._pending.clear()

    def forget(self) -> None:
        """What waits for a backward pass may get one that is not seen."""
        self._pending.clear()
        self._peak = 0

    def _reached(self, losses: list[Tensor], wanted: int) -> int | None:
        seen: set[Any] = set()
        queue = [loss.grad_fn for loss in losses if loss.grad_fn is not None]
        found = 0
        while queue:
            node = queue.pop()
            if node in seen:
                continue
            seen.add(node)
            if len(seen) > 50_000:
                return None
            token = node.metadata.get(KEY)
            if token is not None:
                token.used = True
                found += 1
                if found >= wanted:
                    break
            queue += [inner for inner, _ in node.next_functions if inner is not None]
        return found

    def stepped(self, step: int) -> None:
        """An optimizer has stepped: graphs from before the last step have no use any more."""
        if step & (step - 1) and step % 16:
            return
        past = [token for token in list(self.tokens) if token.step < step - 1]
        old = len(past)
        self.spent_peak = max(self.spent_peak, len({token.step for token in past if token.used}))
        if len(self.old_counts) < 512:
            self.old_counts.append((step, old))
            self.rss.append((step, resident()))
        if old >= MANY and self.line is None and self._searched < 8:
            self._search()

    def ended(self) -> None:
        """The program ends: what still waits for a backward pass was kept for nothing. A program that has made no backward pass yet, or uses whole
        episodes, may have died within one."""
        if self._peak >= MANY and self._backwards and not self._episodes:
            self.wasted_peak = max(self.wasted_peak, self._peak)

    def _search(self) -> None:
        """Which of the user's variables holds them, and where it grows."""
        self._searched += 1
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if is_user(frame.f_code) and self._search_frame(frame):
                return
            frame = frame.f_back

    def _search_frame(self, frame: FrameType) -> bool:
        held = {name for name, value in list(frame.f_locals.items()) if _holds(value)}
        owner = frame.f_locals.get("self")
        if owner is not None:
            held |= {f"self.{name}" for name, value in list(getattr(owner, "__dict__", {}).items()) if _holds(value)}
        code = frame.f_code
        path, first = code.co_filename, 1 if code.co_name == "<module>" else code.co_firstlineno
        last = max((number for *_, number in code.co_lines() if number), default=first)
        for name, number in queries.accumulations(path, first, last):
            if name in held:
                self.holder = {"name": name, "function": code.co_name}
                self.line = line_at(path, number)
                return True
        return False

    def facts(self) -> dict[str, Any]:
        return {
            "alive": len(self.tokens),
            "unused_peak": self.unused_peak,
            "wasted_peak": self.wasted_peak,
            "spent_peak": self.spent_peak,
            "old": self.old_counts[-64:],
            "rss": self.rss[-64:],
            "holder": self.holder,
            "line": self.line,
            "discarded": [
                {"root": root, "calls": calls, "line": evaluation_line((code, number))}
                for (root, code, number), calls in self.died.items()
                if (root, code, number) not in self.lived
            ],
        }


def _of_one_batch(tokens: list[Token]) -> bool:
    """Several passes over one batch (a guess for each label, a vote of many) are as many for every batch: they do not pile up."""
    latest = batches.latest
    return latest is not None and all(token.batch is not None and token.batch() is latest for token in tokens)


def resident() -> int:
    """Megabytes, 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE >> 20
    except (OSError, ValueError, IndexError):
        return 0


def _holds(value: Any) -> bool:
    """A tensor with a history, or a collection with some of them at its end."""
    try:
        if isinstance(value, Tensor):
            return value.grad_fn is not None
        if isinstance(value, list | tuple) and value:
            return any(isinstance(item, Tensor) and item.grad_fn is not None for item in value[-2:])
        if isinstance(value, dict) and value:
            return any(_holds(item) for item in list(value.values())[:32])
    except Exception:
        return False
    return False
