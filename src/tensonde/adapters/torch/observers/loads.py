"""States that were loaded to no effect: into the module that they came from, or with `strict=False` and without a place for their keys.

A load that leaves keys over is compared by name and shape with the keys of the module that got nothing. Names differ by what a
wrapper puts into them (`_orig_mod.` of torch.compile, `module.` of DataParallel, ...) or by what one side has in front.
Forgotten again when a later load fills the same module: many programs try one way after the other.

Also checkpoints of `torch.distributed.checkpoint`, which are read into the tensors of a state that the program gives: one that has no tensors gets nothing.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.tensors import values_of
from tensonde.adapters.torch.wrappers import HELD_AS
from tensonde.program import queries
from tensonde.program.lines import CodeLine, line_at, line_of

MOST = 16
MOST_FILLED = 1 << 16
_FILLED: set[int] = set()
"""Where tensors lie that a distributed checkpoint was read into, and that no module was loaded from yet."""
_UNFILLED: dict[CodeLine, dict[str, Any]] = {}
_LOADS: dict[CodeLine, tuple[weakref.ref[nn.Module], dict[str, Any]]] = {}


def noted(module: nn.Module, state: Mapping[str, Any], result: Any, place: CodeLine | None) -> None:
    """A load is over; `result` is what it returned."""
    missing, unexpected = (list(getattr(result, name, None) or ()) for name in ("missing_keys", "unexpected_keys"))
    if not unexpected and not _LOADS:
        return
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    matched = len(state) - len(unexpected)
    if 2 * matched >= len(own):
        inside = {id(part) for part in module.modules()}
        for known, (ref, _) in list(_LOADS.items()):
            if (loaded := ref()) is not None and id(loaded) in inside:
                del _LOADS[known]
    if not unexpected or not missing or place is None or (len(_LOADS) >= MOST and place not in _LOADS):
        return
    shapes = {name: own[name].shape for name in missing if name in own}
    left = {name: value.shape for name in unexpected if isinstance(value := state.get(name), Tensor)}
    how, part, count = renaming(left, shapes)
    if count:
        entry = {"type": type(module).__name__, "own": len(own), "given": len(state), "matched": matched}
        entry |= {"how": how, "part": part, "would_match": count, "given_key": unexpected[0], "own_key": missing[0]}
        _LOADS[place] = (weakref.ref(module), entry)


def renaming(left: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, str, int]:
    """What is to be done with the keys that are left over, with which part of their names, and how many then match."""
    bare: dict[str, Any] = {}
    for name, shape in wanted.items():
        bare.setdefault(_bare(name), shape)
    same = [name for name, shape in left.items() if bare.get(_bare(name)) == shape]
    if same:
        worn = Counter(part for names in (same, wanted) for name in names for part in _worn(name))
        part = worn.most_common(1)[0][0] if worn else ""
        return ("wrapper", f"{part}.", len(same)) if part else ("", "", 0)
    best = ("", "", 0)
    for given in list(left)[:4]:
        for name in wanted:
            if given.endswith(f".{name}"):
                front = given.removesuffix(name)
                count = sum(wanted.get(key.removeprefix(front)) == shape for key, shape in left.items())
                best = max(best, ("take off", front, count), key=lambda one: one[2])
            elif name.endswith(f".{given}"):
                front = name.removesuffix(given)
                count = sum(wanted.get(front + key) == shape for key, shape in left.items())
                best = max(best, ("put on", front, count), key=lambda one: one[2])
    return best


def _bare(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in HELD_AS)


def _worn(name: str) -> list[str]:
    return [part for part in name.split(".") if part in HELD_AS]


def unmatched() -> list[dict[str, Any]]:
    """As it stands in the facts."""
    return [{**entry, "line": line_of(place)} for place, (_, entry) in _LOADS.items()]


def read_into(state: Mapping[str, Any], stored: Iterable[str], place: CodeLine | None, step: int) -> None:
    """A distributed checkpoint, which has tensors of the names `stored`, is about to be read into the tensors of a state."""
    keys = list(stored)
    for path, value in _flat(state):
        if isinstance(value, Tensor) and (held := values_of(value)) is not None and len(_FILLED) < MOST_FILLED:
            _FILLED.add(held.data_ptr())
        elif isinstance(value, Mapping) and place is not None and len(_UNFILLED) < MOST:
            left = [key for key in keys if key.startswith(f"{path}.")]
            if left:
                _UNFILLED[place] = {"name": path.rpartition(".")[0], "stored": len(left), "step": step, "place": place}


def _flat(state: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All tensors, and the empty `state` of an optimizer."""
    for key, value in state.items():
        path = f"{prefix}{key}"
        if isinstance(value, Tensor) or (key == "state" and value == {} and "param_groups" in state):
            yield path, value
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{path}.")


def was_read_into(module: nn.Module) -> bool:
    """Whether a checkpoint was read into the module's own tensors since it was last loaded: then it changes nothing to load them, and nothing is wrong."""
    own = {held.data_ptr() for one in module.parameters() if (held := values_of(one)) is not None}
    found = bool(own & _FILLED)
    _FILLED.difference_update(own)
    return found


def unfilled() -> list[dict[str, Any]]:
    """As it stands in the facts."""
    return [
        {**{k: v for k, v in one.items() if k != "place"}, "line": line_of(one["place"])} for one in _UNFILLED.values()
    ]


def loaded_itself() -> list[dict[str, Any]]:
    """Loads that changed nothing; `kept` is where the state was put into a variable, if it was."""
    found = []
    for (code, number), (kind, count) in KNOWN.loaded_itself.items():
        path = code.co_filename
        kept = [
            at
            for name in queries.names_at(path, number)
            if (at := queries.assignment(path, name)) and ".state_dict()" in line_at(path, at)["code"]
        ]
        found.append(
            {
                "type": kind,
                "count": count,
                "line": line_at(path, number),
                "kept": line_at(path, kept[0]) if kept else None,
            }
        )
    return found
