"""What a root cell is called, and what is inside it.

Names are those that `cells_and_names` gives, below the variable that holds the root; the root that has all the parameters adds
nothing to them (`conv1`, `fc2.weight`). Cells of MindSpore that only wrap a network for training (WithLossCell,
TrainOneStepCell, what `Model` makes) are passed over: `fc2` is `fc2` in every way of training. Two names are equal where two programs
hold the same cell in attributes of the same names.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from mindspore import nn

from tensonde.program.frames import foreign_frames


@dataclass(frozen=True, slots=True)
class RootName:
    """`own` names the root itself, `prefix` starts the names of what is inside it ("" or ending in a dot)."""

    own: str
    prefix: str
    owner: Any


def is_optimizer(cell: Any) -> bool:
    return isinstance(cell, nn.Optimizer) or any(kind.__name__ == "Optimizer" for kind in type(cell).__mro__)


def is_wrapper(cell: Any) -> bool:
    """Runs a step or adds the loss, and computes nothing of its own."""
    module = type(cell).__module__
    if module.startswith(("mindspore.nn.wrap", "mindspore.boost", "mindspore.train")):
        return True
    if isinstance(cell, nn.TrainOneStepCell | nn.WithLossCell | nn.WithEvalCell):
        return True
    return any(is_optimizer(part) for part in children(cell))


def is_container(cell: Any) -> bool:
    """Holds cells but is never called itself."""
    return isinstance(cell, nn.CellList | nn.CellDict)


def children(cell: Any) -> list[Any]:
    return [part for part in cell._cells.values() if part is not None]


def cells_in(root: Any) -> Iterator[tuple[str, Any]]:
    """The cell itself, under "", and every cell inside it, by path; optimizers are none."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        path, cell = waiting.pop(0)
        if id(cell) in seen or is_optimizer(cell):
            continue
        seen.add(id(cell))
        yield path, cell
        inner = [(f"{path}.{name}" if path else name, part) for name, part in cell._cells.items() if part is not None]
        waiting[:0] = inner


def own_parameters(cell: Any) -> Iterator[tuple[str, Any]]:
    """Of this cell alone, by the attribute."""
    for name, parameter in cell._params.items():
        if parameter is not None:
            yield name, parameter


def parameters_in(root: Any) -> list[Any]:
    found = {id(p): p for _, cell in cells_in(root) for _, p in own_parameters(cell)}
    return list(found.values())


def is_statistic(cell: Any, name: str, parameter: Any) -> bool:
    """A state that the cell keeps by itself, such as the moving mean of a batch norm: what PyTorch calls a buffer."""
    return not parameter.requires_grad and (name.startswith("moving_") or "Norm" in type(cell).__name__)


def name_root(cell: Any, frame: FrameType | None, roots: Mapping[str, Any]) -> RootName:
    """`roots` are those that have names already."""
    variable, owner, siblings = _find(cell, frame)
    own = variable or type(cell).__name__.lower()
    if own in {name for name, _ in owner._cells.items()}:
        own = type(owner).__name__
    if own in roots:
        own = next(name for k in itertools.count(2) if (name := f"{own}_{k}") not in roots)
    alone = _trainable(owner) and siblings <= 1 and not any(_trainable(root) for root in roots.values())
    return RootName(own, "" if alone else f"{own}.", owner)


def _trainable(cell: Any) -> bool:
    return bool(parameters_in(cell))


def _find(cell: Any, frame: FrameType | None) -> tuple[str, Any, int]:
    """The variable that holds the cell (or an owner of it), that owner, and how many trainable roots stand beside it."""
    nameless: Any = None
    for candidate in foreign_frames(frame):
        bound = dict(bindings(candidate))
        own = bound.pop("self", None)
        if nameless is None and own is not None and not is_wrapper(own) and _holds(own, cell):
            nameless = own  # a method that calls a part: some frame further out has a name for the whole
        wanted = nameless if nameless is not None else cell
        plain = {name: found for name, found in bound.items() if not is_wrapper(found)}
        for name, found in plain.items():
            if found is wanted:
                return name, wanted, _count_roots(plain)
        for name, found in plain.items():
            if _holds(found, wanted):
                return name, found, _count_roots(plain)
    return "", nameless if nameless is not None else cell, 1


def _holds(outer: Any, inner: Any) -> bool:
    return any(cell is inner for _, cell in cells_in(outer))


def bindings(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """Cells that the frame can name: its variables, and the attributes of its `self`."""
    scopes: list[Mapping[str, Any]] = [frame.f_locals]
    if frame.f_globals is not frame.f_locals and frame.f_globals.get("__name__") == "__main__":
        scopes.append(frame.f_globals)
    for scope in scopes:
        for name, found in list(scope.items()):
            if isinstance(found, nn.Cell) and not is_optimizer(found):
                yield name, found
    holder = frame.f_locals.get("self")
    if holder is not None and not isinstance(holder, nn.Cell):
        for name, found in list(getattr(holder, "__dict__", {}).items()):
            if isinstance(found, nn.Cell) and not is_optimizer(found):
                yield name, found


def _count_roots(bound: Mapping[str, Any]) -> int:
    """How many of these have parameters and are not part of another."""
    unique = {id(cell): cell for cell in bound.values() if _trainable(cell)}
    inside = {id(part) for cell in unique.values() for _, part in cells_in(cell) if part is not cell}
    return sum(1 for key in unique if key not in inside)


def name_inside(parent: Any, child: Any) -> str:
    """How a cell that is being called inside another one hangs there: registered, kept in a plain list, or made on the fly."""
    for path, found in cells_in(parent):
        if found is child and path:
            return path
    name: str
    for name, held in vars(parent).items():
        if held is child:
            return name
        if isinstance(held, list | tuple):
            for k, item in enumerate(held):
                if item is child:
                    return f"{name}.{k}"
    return type(child).__name__
