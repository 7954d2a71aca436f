"""What a root module is called.

Sites are named by module path. The root that the user calls `model` adds nothing to the paths of what
is inside it (`blocks.3.attn`), as long as it is the only one with parameters; where there are several
(`G`, `D`), each name starts with the variable's. Roots without parameters (`criterion`) go by their variable's name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torch import nn

from tensonde.adapters.torch.wrappers import module_behind
from tensonde.program.frames import foreign_frames


@dataclass(frozen=True, slots=True)
class RootName:
    """`own` names the root itself, `prefix` starts the names of what is inside it ("" or ending in a dot).

    `owner` is the module that the names are relative to, when the called root is part of a larger one.
    """

    own: str
    prefix: str
    owner: nn.Module


def name_root(module: nn.Module, frame: FrameType, roots: Mapping[str, nn.Module]) -> RootName:
    """`roots` are those that have names already."""
    variable, owner, siblings = _find(module, frame)
    own = variable or type(module).__name__.lower()
    children = {name for name, _ in owner.named_children()}
    if own in children:
        own = type(owner).__name__
    if own in roots:
        own = next(name for k in itertools.count(2) if (name := f"{own}_{k}") not in roots)
    alone = _trainable(owner) and siblings <= 1 and not any(_trainable(root) for root in roots.values())
    return RootName(own, "" if alone else f"{own}.", owner)


def _trainable(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _find(module: nn.Module, frame: FrameType) -> tuple[str, nn.Module, int]:
    """The variable that holds the module (or an owner of it), that owner, and how many trainable roots stand beside it."""
    nameless: nn.Module | None = None
    for candidate in foreign_frames(frame):
        bound = dict(bindings(candidate))
        own = bound.pop("self", None)
        if nameless is None and own is not None and any(part is module for part in own.modules()):
            nameless = own  # a method that calls a part: some frame further out has a name for the whole
        wanted = nameless or module
        for name, found in bound.items():
            if found is wanted:
                return name, wanted, _count_roots(bound)
        for name, found in bound.items():
            if any(inner is wanted for inner in found.modules()):
                return name, found, _count_roots(bound)
    return "", nameless or module, 1


def bindings(frame: FrameType) -> Iterator[tuple[str, nn.Module]]:
    """Modules that the frame can name: its variables, and the attributes of its `self`."""
    scopes: list[Mapping[str, Any]] = [frame.f_locals]
    if frame.f_globals is not frame.f_locals and frame.f_globals.get("__name__") == "__main__":
        scopes.append(frame.f_globals)
    for scope in scopes:
        for name, found in list(scope.items()):
            if _is_module(found):
                yield name, found
    holder = frame.f_locals.get("self")
    if holder is not None and not _is_module(holder):
        for name, found in _attributes(holder):
            if _is_module(found):
                yield name, found


def _is_module(thing: Any) -> bool:
    """Asked of every variable around: some are proxies that do not like to be looked at."""
    try:
        return isinstance(thing, nn.Module) and is_made(thing)
    except Exception:
        return False


def is_made(module: nn.Module) -> bool:
    """Not while its own `__init__` still calls others before `super().__init__()`: until then it has no parts."""
    return "_modules" in module.__dict__


def _attributes(holder: Any) -> list[tuple[str, Any]]:
    try:
        return list(holder.__dict__.items())
    except Exception:
        return []


def _count_roots(bound: Mapping[str, nn.Module]) -> int:
    """How many of these have parameters and are not part of another."""
    unique = {id(m): m for m in bound.values() if _trainable(m)}
    inside = {id(inner) for m in unique.values() for inner in m.modules() if inner is not m}
    return sum(1 for key in unique if key not in inside)


def clean(path: str, root: nn.Module) -> str:
    """The path without what wrappers such as DistributedDataParallel put into it."""
    held = module_behind(root)
    if held is not None:
        inner = held[0]
        if path == inner:
            return "module"
        path = path.removeprefix(f"{inner}.")
    return path.replace("._orig_mod", "").replace("_orig_mod.", "")


def name_inside(parent: nn.Module, child: nn.Module) -> str:
    """How a module that is being called inside another one hangs there: registered, kept in a plain list, or made on the fly."""
    path: str
    for path, found in parent.named_modules():
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
        elif isinstance(held, dict):
            for key, item in held.items():
                if item is child and name != "_modules":
                    return f"{name}.{key}"
    return type(child).__name__
