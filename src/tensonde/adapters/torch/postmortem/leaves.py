"""Tensors that are no leaves, or whose elements share memory, where that is not taken: who they are, and the line that
made them."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.postmortem.definition import definition, roots
from tensonde.adapters.torch.postmortem.holder import held_by
from tensonde.adapters.torch.postmortem.traceback import Failure, tensor_fact
from tensonde.program.classes import last_set, set_anywhere
from tensonde.program.lines import to_json
from tensonde.program.origin import made
from tensonde.program.standing import Stand, stand_at
from tensonde.program.values import operands


def non_leaf(failure: Failure) -> dict[str, Any] | None:
    """The tensor that an optimizer refused."""
    for place in reversed(failure.places):
        group = place.frame.f_locals.get("param_group")
        given = group.get("params") if isinstance(group, dict) else None
        for tensor in given if isinstance(given, list | tuple) else ():
            if isinstance(tensor, Tensor) and not tensor.is_leaf:
                op = type(tensor.grad_fn).__name__.removesuffix("Backward0")
                return {**tensor_fact(tensor), "op": op, **(held_by(tensor, failure) or {})}
    return None


def overlapping(failure: Failure) -> dict[str, Any] | None:
    """The tensor whose elements share memory and that was to be written: a parameter of an optimizer, else an operand
    of the failing line."""
    for place in reversed(failure.places):
        held = place.frame.f_locals.get("self")
        if isinstance(held, torch.optim.Optimizer):
            for tensor in (p for group in held.param_groups for p in group["params"]):
                if _shares(tensor):
                    return {**tensor_fact(tensor), **_owner(tensor, failure)}
    last = failure.last
    if last is None or not last.is_user or last.expression is None:
        return None
    for name, tensor in operands(last.expression, last.frame).items():
        if isinstance(tensor, Tensor) and _shares(tensor):
            stand = stand_at(last, failure.user)
            node = ast.parse(name, mode="eval").body
            way = made(node, stand, last.line, wanted=_expands) if stand is not None else None
            return {**tensor_fact(tensor), "name": name, "line": way.source if way is not None else None}
    return None


def _shares(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and any(
        size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def _expands(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("expand", "expand_as", "broadcast_to")


def _beside(owner: nn.Module) -> Stand:
    """A place outside of any function, where `owner` means this module."""
    return Stand("", ast.Module([], []), SimpleNamespace(f_locals={"owner": owner}, f_globals={}), 0)


def _owner(tensor: Tensor, failure: Failure) -> dict[str, Any]:
    for root in roots(failure):
        for module in root.modules():
            for name, held in module._parameters.items():
                if held is tensor:
                    path = failure.name_of(module)
                    way = made(ast.parse(f"owner.{name}", mode="eval").body, _beside(module), 0, wanted=_expands)
                    line = way.source if way is not None else last_set(type(module), name)
                    return {"name": f"{path}.{name}" if path else name, "module": path, "line": line}
    return held_by(tensor, failure) or {}


def copied(failure: Failure) -> dict[str, Any] | None:
    """The module whose attribute could not be copied, the attribute, and the line that sets it while it runs."""
    given = [
        place.frame.f_locals.get("x")
        for place in failure.places
        if place.function == "deepcopy" and place.path.endswith("copy.py")
    ]
    tensor = given[-1] if given else None
    owner = next((held for held in reversed(given) if isinstance(held, nn.Module)), None)
    if not isinstance(tensor, Tensor) or tensor.is_leaf or owner is None:
        return None
    for name, held in vars(owner).items():
        if held is tensor or any(item is tensor for item in _items(held)):
            line = last_set(type(owner), name, running=True) or set_anywhere(
                name, [place.path for place in failure.user]
            )
            computed = any(
                f"{name}_{part}" in owner._parameters for part in ("g", "orig")
            )  # weight_norm, spectral_norm
            return {
                **tensor_fact(tensor),
                "module": failure.name_of(owner),
                "type": type(owner).__name__,
                "attribute": name,
                "line": line or (to_json(definition(owner, failure)) if computed else None),
                "op": type(tensor.grad_fn).__name__.removesuffix("Backward0"),
                "computed": computed,
            }
    return None


def _items(held: Any) -> list[Any]:
    return list(held.values()) if isinstance(held, dict) else list(held) if isinstance(held, list | tuple) else []
