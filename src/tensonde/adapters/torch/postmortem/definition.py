"""The line of the user's program that makes a module: `self.fc1 = nn.Linear(...)`, also inside `nn.Sequential(...)`."""

from __future__ import annotations

import ast
from types import FrameType

from torch import nn

from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.model.site import SourceLine
from tensonde.program import syntax
from tensonde.program.classes import Made, attribute_made
from tensonde.program.lines import source_line


def definition(module: nn.Module, failure: Failure) -> SourceLine | None:
    made = _made(module, failure, 0)
    return None if made is None else source_line(made[0], made[2])


def _made(module: nn.Module, failure: Failure, depth: int) -> Made | None:
    if depth > 8:
        return None
    for root in roots(failure):
        for parent in root.modules():
            for name, child in parent._modules.items():
                if child is module:
                    return _in_parent(parent, name, failure, depth)
            for name, held in vars(parent).items():
                if isinstance(held, list | tuple) and any(item is module for item in held):
                    return attribute_made(type(parent), name)
    return _variable(module, failure)


def roots(failure: Failure) -> list[nn.Module]:
    found = list(failure.state.roster.roots.values())
    for frame in frames(failure):
        found += [held for held in frame.f_locals.values() if isinstance(held, nn.Module)]
    return list({id(module): module for module in found}.values())


def frames(failure: Failure) -> list[FrameType]:
    """The user's, innermost first."""
    return [place.frame for place in reversed(failure.user)]


def _in_parent(parent: nn.Module, name: str, failure: Failure, depth: int) -> Made | None:
    if isinstance(parent, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        whole = _made(parent, failure, depth + 1)
        return None if whole is None else _element(whole, list(parent._modules).index(name), len(parent))
    return attribute_made(type(parent), name)


def _element(whole: Made, k: int, count: int) -> Made:
    """The k-th of `nn.Sequential(a, b, c)` or `nn.ModuleList([a, b, c])`, where they are written out; else the
    whole."""
    path, node, _ = whole
    if isinstance(node, ast.Call):
        given = (
            node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], ast.List | ast.Tuple) else node.args
        )
        if len(given) == count and not any(isinstance(part, ast.Starred) for part in given):
            return path, given[k], given[k].lineno
    return whole


def _variable(module: nn.Module, failure: Failure) -> Made | None:
    for frame in frames(failure):
        for name, held in frame.f_locals.items():
            if held is module:
                scope = syntax.scope_at(frame.f_code.co_filename, frame.f_lineno)
                for found in syntax.bindings(scope, name) if scope is not None else ():
                    return frame.f_code.co_filename, found.value, found.line
        holder = frame.f_locals.get("self")
        for name, held in getattr(holder, "__dict__", {}).items():
            if held is module:
                return attribute_made(type(holder), name)
    return None
