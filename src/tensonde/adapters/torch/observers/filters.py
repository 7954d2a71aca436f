"""Checkpoints whose keys are chosen by name before they are loaded, where the choice leaves nothing (or next to nothing).

`{k: v for k, v in ckpt.items() if k in own}` is how a program loads what fits. Where the names differ (a prefix of a wrapper, another
attribute), nothing fits, and the model keeps its random weights without a word. The choice is found in the program's own text (a
comprehension over `items()`, or a loop, with an `in` test), and what it chose from is looked up by its name. One look a line.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Mapping
from types import FrameType
from typing import Any

from torch import Tensor, nn

from tensonde.adapters.torch.observers.loads import renaming
from tensonde.adapters.torch.tensors import is_dense
from tensonde.program.filters import choices_at, mapping_of
from tensonde.program.lines import CodeLine, line_at, line_of

MOST = 16
_FILTERED: dict[CodeLine, tuple[weakref.ref[nn.Module], dict[str, Any] | None]] = {}


def noted(module: nn.Module, state: Mapping[str, Any], frame: FrameType | None, place: CodeLine | None) -> None:
    """A state has been loaded from the user's line `place`, somewhere below `frame`."""
    told = any(fact is not None for _, fact in _FILTERED.values())
    if place is None or (not told and (place in _FILTERED or len(_FILTERED) >= MOST)):
        return
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    filled = sum(name in state and not _same(state[name], tensor) for name, tensor in own.items())
    if told and 2 * filled >= len(own):
        inside = {id(part) for part in module.modules()}
        for known, (ref, _) in list(_FILTERED.items()):
            if (loaded := ref()) is not None and id(loaded) in inside:
                _FILTERED[known] = (ref, None)  # loaded after all
    if place in _FILTERED or len(_FILTERED) >= MOST:
        return
    while frame is not None and frame.f_code is not place[0]:
        frame = frame.f_back
    few = bool(own) and 10 * filled <= len(own)
    _FILTERED[place] = (
        weakref.ref(module),
        _look(own, state, filled, frame, place) if few and frame is not None else None,
    )


def _same(given: Any, tensor: Tensor) -> bool:
    plain = is_dense(given) and is_dense(tensor)
    return plain and bool(given.data_ptr() == tensor.data_ptr() != 0)


def _look(
    own: dict[str, Tensor], state: Mapping[str, Any], filled: int, frame: FrameType, place: CodeLine
) -> dict[str, Any] | None:
    path = place[0].co_filename
    for number, source in choices_at(path, place[1]):
        given = mapping_of(source, frame)
        tensors = {k: v.shape for k, v in given.items() if isinstance(v, Tensor)} if given is not None else {}
        gone = not state and (given is None or given is state)  # the name was given to what was left
        if not gone and (len(tensors) < 2 or 10 * filled > len(tensors)):
            continue
        how, part, count = renaming(tensors, {k: v.shape for k, v in own.items()})
        return {
            "line": line_at(path, number),
            "source": ast.unparse(source),
            "given": len(tensors) or None,
            "kept": filled,
            "own": len(own),
            "how": how,
            "part": part,
            "would_match": count,
            "given_key": next(iter(tensors), None),
            "own_key": next(iter(own)),
        }
    return None


def filtered() -> list[dict[str, Any]]:
    """As it stands in the facts."""
    return [{**fact, "loaded_at": line_of(place)} for place, (_, fact) in _FILTERED.items() if fact is not None]
