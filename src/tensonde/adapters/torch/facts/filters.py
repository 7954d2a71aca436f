"""Checkpoints whose keys are chosen by name before they are loaded, where the choice leaves nothing (or next to nothing).

`{k: v for k, v in ckpt.items() if k in own}` is how a program loads what fits. Where the names differ (a prefix of a wrapper, another
attribute), nothing fits, and the model keeps its random weights without a word. The choice is found in the program's own text (a
comprehension over `items()`, or a loop, with an `in` test), and what it chose from is looked up by its name. One look a line.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from torch import Tensor, nn

from tensonde.adapters.torch.facts import syntax
from tensonde.adapters.torch.facts.loads import renaming
from tensonde.adapters.torch.facts.origins import Place, line, line_at
from tensonde.adapters.torch.tensors import is_dense

MOST = 16
_FILTERED: dict[Place, tuple[weakref.ref[nn.Module], dict[str, Any] | None]] = {}


def noted(module: nn.Module, state: Mapping[str, Any], frame: FrameType | None, place: Place | None) -> None:
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
    own: dict[str, Tensor], state: Mapping[str, Any], filled: int, frame: FrameType, place: Place
) -> dict[str, Any] | None:
    path = place[0].co_filename
    for number, source in (*_inline(path, place[1]), *_named(path, place[1])):
        given = _value(source, frame)
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


def _inline(path: str, number: int) -> Iterator[tuple[int, ast.expr]]:
    """A choice that is made in the call of `load_state_dict` itself."""
    parsed = syntax.tree(path)
    for node in ast.walk(parsed) if parsed is not None else ():
        if not isinstance(node, ast.Call) or not node.lineno <= number <= (node.end_lineno or node.lineno):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr == "load_state_dict" and node.args:
            yield from _tested(node.args[0])


def _named(path: str, number: int) -> Iterator[tuple[int, ast.expr]]:
    for name in sorted(syntax.names_at(path, number)):
        yield from chosen(path, name, number)


def chosen(path: str, name: str, before: int) -> Iterator[tuple[int, ast.expr]]:
    """Where the keys of `name` are chosen with an `in` test, last first, and the mapping that they are chosen from."""
    parsed = syntax.tree(path)
    nodes = [n for n in ast.walk(parsed) if getattr(n, "lineno", before + 1) <= before] if parsed is not None else []
    for node in sorted(nodes, key=lambda n: -n.lineno):  # type: ignore[attr-defined]
        if isinstance(node, ast.Assign) and any(_is(target, name) for target in node.targets):
            yield from _tested(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
            if _is(node.func.value, name) and len(node.args) == 1:
                given = node.args[0]
                yield from chosen(path, given.id, node.lineno - 1) if isinstance(given, ast.Name) else _tested(given)
        elif isinstance(node, ast.For) and (source := _items(node.iter)) is not None:
            for inner in ast.walk(node):
                if isinstance(inner, ast.If) and _membership(inner.test) and _puts(inner, name):
                    yield inner.lineno, source


def _tested(node: ast.expr) -> Iterator[tuple[int, ast.expr]]:
    """A comprehension over `items()` with an `in` test, inside of an expression."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.DictComp | ast.GeneratorExp | ast.ListComp) and len(inner.generators) == 1:
            source = _items(inner.generators[0].iter)
            if source is not None and any(_membership(test) for test in inner.generators[0].ifs):
                yield inner.lineno, source


def _items(node: ast.expr) -> ast.expr | None:
    """`ckpt` of `ckpt.items()`."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "items"
    return node.func.value if called else None  # type: ignore[attr-defined]


def _membership(node: ast.expr) -> bool:
    return any(
        isinstance(part, ast.Compare) and any(isinstance(op, ast.In) for op in part.ops) for part in ast.walk(node)
    )


def _puts(node: ast.If, name: str) -> bool:
    """`name[k] = v` inside."""
    return any(
        isinstance(target, ast.Subscript) and _is(target.value, name)
        for part in ast.walk(node)
        if isinstance(part, ast.Assign)
        for target in part.targets
    )


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _value(node: ast.expr, frame: FrameType) -> Mapping[str, Any] | None:
    """What a name, or an entry of what it names, is; nothing of the user's is called."""
    found: Any = None
    if isinstance(node, ast.Name):
        found = frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        held = _value(node.value, frame)
        found = held.get(node.slice.value) if type(held) is dict else None
    return found if isinstance(found, dict) else None


def filtered() -> list[dict[str, Any]]:
    """As it stands in the facts."""
    return [{**fact, "loaded_at": line(place)} for place, (_, fact) in _FILTERED.items() if fact is not None]
