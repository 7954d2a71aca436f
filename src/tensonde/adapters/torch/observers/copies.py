"""Who changes the copies of a trained model: those that are evaluated, and the trained weights that are loaded over.

A copy is a module without a trained parameter whose parameters have the shapes of a trained one and are near it, or are what that began
with. A few values of both are kept from the first evaluation on, so that it shows how far each has gone.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.observers.reading import READING, brought
from tensonde.adapters.torch.observers.refills import STEPS
from tensonde.adapters.torch.observers.stale_statistics import update_line
from tensonde.adapters.torch.tensors import is_dense, is_plain
from tensonde.program.frames import foreign_frames, is_user
from tensonde.program.lines import CodeLine, line_at, line_of

MOST_COPIES = 8
MOST_LOOKS = 64
MATRICES, VALUES = 4, 2048
"""How much of a module is kept: so many values of so many parameters."""
ALIKE = 0.7
"""How far a copy may be from the trained weights at its first evaluation, as a part of their size."""
MOST_LOADS = 16
MOST_STARTS = 256
"""Parameters of optimizers whose values before the first step are kept."""
_STARTS: dict[int, tuple[weakref.ref[Tensor], Tensor, int]] = {}
"""By parameter: a few of these values, and the number of the optimizer."""


class Copy:
    def __init__(self, module: nn.Module, twin: list[Tensor], step: int, start: Tensor | None) -> None:
        """`start`: what the trained weights were before their first step."""
        self.ref = weakref.ref(module)
        self.type = type(module).__name__
        self.begin = _sample(list(module.parameters()))
        self._twin = [weakref.ref(p) for p in twin]
        self.twin_begin = _sample(twin)
        self.as_at_start = start is not None and bool(torch.equal(self.begin, start))
        """It is what the trained weights were before their first step."""
        size = float(self.twin_begin.norm().clamp(min=1e-12))
        self.trained_before = 0.0 if start is None else float((self.twin_begin - start).norm()) / size
        self.steps = [step]
        self.moved = self.twin_moved = self.gap = self.way = 0.0
        self.line: dict[str, Any] | None = None

    @property
    def is_one(self) -> bool:
        """Weights that were drawn by themselves are about 1.4 of their size apart."""
        near = float((self.begin - self.twin_begin).norm()) < ALIKE * float(self.twin_begin.norm())
        return near or self.as_at_start

    def look(self, module: nn.Module, step: int, frame: FrameType | None, loop: CodeType | None) -> None:
        twin = [p for ref in self._twin if (p := ref()) is not None]
        if len(twin) < len(self._twin) or step == self.steps[-1]:
            return
        self.steps.append(step)
        now, other = _sample(list(module.parameters())), _sample(twin)
        size = float(self.twin_begin.norm().clamp(min=1e-12))
        self.moved = float((now - self.begin).norm()) / size
        self.twin_moved = float((other - self.twin_begin).norm()) / size
        self.gap = float((now - other).norm()) / size
        self.way = float((self.begin - other).norm()) / size
        self.line = _line_in(frame, loop) or self.line


class Copies:
    """Belongs to the training thread."""

    def __init__(self) -> None:
        self.seen: dict[int, Copy | None] = {}
        """By module; None: it is no copy."""

    def begins(self, optimizer: Any) -> None:
        """It is about to step for the first time."""
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.ndim >= 2 and is_dense(p) and len(_STARTS) < MOST_STARTS:
                    _STARTS[id(p)] = weakref.ref(p), p.detach().reshape(-1)[:VALUES].clone(), KNOWN.number(optimizer)

    def evaluated(self, module: nn.Module, step: int, frame: FrameType | None, loop: CodeType | None) -> None:
        """A root is called without gradients, between steps. `loop` is the code that steps."""
        if id(module) in _SET_BACK:
            _SET_BACK[id(module)]["evaluated"] = _is_at_start(module)
        known = self.seen.get(id(module), self)
        if known is None or (isinstance(known, Copy) and len(known.steps) >= MOST_LOOKS):
            return
        first = next(module.parameters(), None)
        if first is None or not READING.may_wait(first):
            return
        with torch.no_grad():
            if isinstance(known, Copy) and known.ref() is module:
                known.look(module, step, frame, loop)
            elif len(self.seen) < 4 * MOST_COPIES:
                twin = _twin_of(module)
                copy = Copy(module, twin, step, _start_of(twin)) if twin else None
                if copy is not None:
                    copy.line = _line_in(frame, loop)
                self.seen[id(module)] = copy if copy is not None and copy.is_one else None

    def follows(self, module: nn.Module) -> bool:
        """It is to be looked at again."""
        known = self.seen.get(id(module))
        return known is not None and known.ref() is module and len(known.steps) < MOST_LOOKS

    def facts(self, steps: int) -> list[dict[str, Any]]:
        return [
            {
                "type": copy.type,
                "looks": len(copy.steps),
                "first": copy.steps[0],
                "last": copy.steps[-1],
                "moved": copy.moved,
                "trained_moved": copy.twin_moved,
                "gap": copy.gap,
                "way": copy.way,
                "line": copy.line,
                "as_at_start": copy.as_at_start,
                "trained_before": copy.trained_before,
                "update_line": update_line(inside=True),
            }
            for copy in list(self.seen.values())
            if copy is not None and (len(copy.steps) > 1 or copy.as_at_start)
        ]


def _twin_of(module: nn.Module) -> list[Tensor]:
    """The trained parameters that it is a copy of: of the same shapes, one after the other."""
    own = list(module.parameters())
    held = {id(p) for o in list(KNOWN.optimizers) for group in o.param_groups for p in group["params"]}
    if not own or any(id(p) in held or not is_dense(p) for p in own) or sum(p.ndim >= 2 for p in own) == 0:
        return []
    shapes = [tuple(p.shape) for p in own]
    for optimizer in KNOWN.mine():
        trained = [p for group in optimizer.param_groups for p in group["params"]]
        for first in range(len(trained) - len(own) + 1):
            if [tuple(p.shape) for p in trained[first : first + len(own)]] == shapes:
                return trained[first : first + len(own)]
    return []


def shaped_like_trained(module: nn.Module) -> bool:
    """Its parameters have the shapes of trained ones, and are not trained themselves."""
    return bool(_twin_of(module))


def _start_of(trained: list[Tensor]) -> Tensor | None:
    """What trained parameters were before their first step."""
    kept = [_STARTS.get(id(p)) for p in trained if p.ndim >= 2][:MATRICES]
    if not kept or any(known is None or known[0]() is None for known in kept):
        return None
    return _sample([known[1][None] for known in kept if known is not None])


def _is_at_start(module: nn.Module) -> bool:
    """Its weights are what they were before their first step."""
    start = _start_of(list(module.parameters()))
    with torch.no_grad():
        return start is not None and bool(torch.equal(_sample(list(module.parameters())), start))


def _sample(parameters: list[Tensor]) -> Tensor:
    chosen = [p for p in parameters if p.ndim >= 2][:MATRICES]
    if any(p.device != chosen[0].device for p in chosen):
        return torch.cat([brought(p.detach().reshape(-1)[:VALUES]).to(torch.float64) for p in chosen])
    return brought(torch.cat([p.detach().reshape(-1)[:VALUES] for p in chosen])).to(torch.float64)


def _line_in(frame: FrameType | None, loop: CodeType | None) -> dict[str, Any] | None:
    """The line of the code that trains, else the outermost one of a function."""
    users = [f for f in foreign_frames(frame) if is_user(f.f_code)]
    for user in users:
        if user.f_code is loop:
            return line_at(user.f_code.co_filename, user.f_lineno)
    return line_at(users[-1].f_code.co_filename, users[-1].f_lineno) if users else None


# -- trained weights that are loaded over ----------------------------------------------------------

_OVER: dict[CodeLine, dict[str, Any]] = {}
_SET_BACK: dict[int, dict[str, Any]] = {}
"""By module: the entry of its last load, which gave it the weights from before its training."""


def loaded(module: nn.Module, state: Mapping[str, Any], place: CodeLine | None) -> None:
    """A state was loaded into a module: notes it where an optimizer has trained the module."""
    if place is None or (place not in _OVER and len(_OVER) >= MOST_LOADS):
        return
    for number in _trained_by(module):
        with torch.no_grad():
            values = [v for v in state.values() if isinstance(v, Tensor) and is_plain(v) and v.is_floating_point()]
            seen = tuple(float(v.double().sum()) for v in values[:8])
            back = _is_at_start(module)
        known = _OVER.setdefault(
            place,
            {"type": type(module).__name__, "times": 0, "same": 0, "steps": [], "seen": None, "evaluated": False},
        )
        known["evaluated"] = False
        _SET_BACK.pop(id(module), None)
        if back:
            _SET_BACK[id(module)] = known
        known["same"] += known["seen"] == seen
        known["times"] += 1
        known["steps"] = [*known["steps"][:7], STEPS[number]]
        known["seen"] = seen
        return


def _trained_by(module: nn.Module) -> Iterator[int]:
    """The optimizers that have stepped with its parameters, by number; they may be gone."""
    own = {id(p): p for p in module.parameters()}
    for optimizer in list(KNOWN.optimizers):
        number = KNOWN.number(optimizer)
        if STEPS.get(number) and any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
            yield number
    for key, p in own.items():
        if key in _STARTS and _STARTS[key][0]() is p and STEPS.get(_STARTS[key][2]):
            yield _STARTS[key][2]


def loaded_over() -> list[dict[str, Any]]:
    return [
        {
            "type": known["type"],
            "times": known["times"],
            "same": known["same"],
            "steps": known["steps"],
            "set_back": known["evaluated"],
            "line": line_of(place),
        }
        for place, known in _OVER.items()
    ]
