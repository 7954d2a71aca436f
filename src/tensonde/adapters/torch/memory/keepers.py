"""Variables of the program that keep tensors alive, and the lines that put tensors into them."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.replay.restore.writes import storage_of
from tensonde.program import syntax
from tensonde.program.lines import line_at
from tensonde.program.values import FrameState

MOST_ITEMS = 10_000
MOST_NODES = 20_000
MOST_KEEPERS = 8
_PUTS = ("append", "appendleft", "add", "extend", "insert", "update", "setdefault")


def keepers(
    places: Iterable[FrameState], seen: set[int], *, wanted: set[int] | None = None, device: str = ""
) -> list[dict[str, Any]]:
    """Those that hold memory which is not in `seen` (by `storage_of`), those with graphs first, then the largest. `wanted`: only this memory
    counts; `device`: only of this type. What they hold is added to `seen`."""
    found: list[dict[str, Any]] = []
    for place in places:
        for name, value in _variables(place):
            tensors = list(_items(value))
            held = _bytes(tensors, seen, wanted, device)
            graphs = sum(tensor.grad_fn is not None for tensor in tensors)
            if held:
                line = _collecting(place.path, name)
                found.append({"name": name, "bytes": held, "tensors": len(tensors), "graphs": graphs, "line": line})
    return sorted(found, key=lambda keeper: (-(keeper["graphs"] > 1), -keeper["bytes"]))[:MOST_KEEPERS]


def _variables(place: FrameState) -> Iterator[tuple[str, Any]]:
    """Of a frame, and attributes of the objects of the program that stand in them."""
    for name, value in list(place.frame.f_locals.items()):
        if name.startswith("__") or isinstance(value, torch.nn.Module | torch.optim.Optimizer | type):
            continue
        yield name, value
        inner = getattr(value, "__dict__", None)
        if isinstance(inner, dict) and type(value).__module__ == place.frame.f_globals.get("__name__"):
            for attribute, kept in list(inner.items())[:64]:
                if not isinstance(kept, torch.nn.Module | torch.optim.Optimizer):
                    yield f"{name}.{attribute}", kept


def _items(value: Any, depth: int = 2) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, list | tuple | set | frozenset | deque):
        for part in list(value)[:MOST_ITEMS]:
            yield from _items(part, depth - 1)
    elif depth and isinstance(value, dict):
        for part in list(value.values())[:MOST_ITEMS]:
            yield from _items(part, depth - 1)


def _bytes(tensors: list[Tensor], seen: set[int], wanted: set[int] | None, device: str) -> int:
    """Of memory that these hold, by themselves and by their graphs."""
    total = 0
    for tensor in (*tensors, *_saved(tensors)):
        if tensor.layout is not torch.strided or tensor.device.type == "meta":
            continue
        if device and tensor.device.type != device:
            continue
        key = storage_of(tensor)
        if key not in seen and (wanted is None or key in wanted):
            seen.add(key)
            total += int(tensor.untyped_storage().nbytes())
    return total


def _saved(tensors: list[Tensor]) -> Iterator[Tensor]:
    """What the graphs of these keep for a backward pass."""
    nodes = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    known: set[Any] = set()
    while nodes and len(known) < MOST_NODES:
        node = nodes.pop()
        if node is None or node in known:
            continue
        known.add(node)
        nodes += [following for following, _ in node.next_functions]
        for name in dir(node):
            if name.startswith("_saved_") and not name.startswith("_saved_tensors"):
                try:
                    value = getattr(node, name)
                except RuntimeError:  # given back by a backward pass
                    break
                yield from _items(value)


def _collecting(path: str, name: str) -> dict[str, Any] | None:
    """Where the program puts things into this variable. None: nowhere, or in several ways that do not look like it."""
    attribute = name.rpartition(".")[2] if "." in name else None

    def is_it(node: ast.expr) -> bool:
        if isinstance(node, ast.Subscript):
            return is_it(node.value)
        if attribute is not None:
            return isinstance(node, ast.Attribute) and node.attr == attribute
        return syntax.is_name(node, name)

    for node in syntax.walk(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PUTS:
            if is_it(node.func.value):
                return line_at(path, node.lineno)
        elif isinstance(node, ast.AugAssign) and is_it(node.target):
            return line_at(path, node.lineno)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            again = any(isinstance(part, ast.expr) and is_it(part) for part in ast.walk(node.value))
            if is_it(target) and (again or isinstance(target, ast.Subscript)):
                return line_at(path, node.lineno)
    return None
