"""What stands behind a wrapper: the optimizer that really steps, the module that really computes.

Libraries hand their users a stand-in (accelerate, Lightning, DeepSpeed, FairScale, SAM and Lookahead for optimizers; DistributedDataParallel
and torch.compile for modules). No library is known by name here. A stand-in for an optimizer shows the very `param_groups` of
the one behind it: that is how a schedule that is given the stand-in reaches the optimizer. One without groups holds exactly one optimizer.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.program.frames import is_user

DEEPEST = 4
HELD_AS = ("_orig_mod", "module", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
"""Attributes under which wrappers of modules hold theirs, and which so get into the names of parameters."""


def optimizer_behind(thing: Any) -> Optimizer | None:
    """The optimizer that changes weights when `thing` steps; itself where it is no wrapper, None where it has to do
    with no optimizer. Of several that share their groups it is the one that steps."""
    for _ in range(DEEPEST):
        sharing = _sharing(thing)
        if sharing:
            busy = [one for one in sharing if KNOWN.number(one) in KNOWN.stepped]
            return busy[0] if busy else thing if thing in sharing else sharing[0]
        held = _held(thing)
        if len(held) != 1 or "param_groups" in _attributes(thing):
            break
        thing = held[0]
    return thing if _is_optimizer(thing) else None


def module_behind(module: nn.Module) -> tuple[str, nn.Module] | None:
    """Of a library's wrapper around one module: the attribute that holds it, and the module. None for any other."""
    children = module._modules
    if len(children) != 1 or module._parameters or module._buffers:
        return None
    name, inner = next(iter(children.items()))
    if name not in HELD_AS or inner is None or _is_users(module):
        return None
    return name, inner


def _is_users(module: nn.Module) -> bool:
    code = getattr(type(module).forward, "__code__", None)
    return code is not None and is_user(code)


def _sharing(thing: Any) -> list[Any]:
    """Optimizers that were made in this process and that have a group in common with `thing`, in that order."""
    try:
        groups = {id(group) for group in thing.param_groups}
        found = [one for one in KNOWN.optimizers if any(id(group) in groups for group in one.param_groups)]
    except Exception:  # it need not be an optimizer, and its attributes may compute
        return []
    return sorted(found, key=KNOWN.number)


def _held(thing: Any) -> list[Any]:
    found = {id(value): value for value in _attributes(thing).values() if value is not thing and _is_optimizer(value)}
    return list(found.values())


def _attributes(thing: Any) -> dict[str, Any]:
    found = getattr(thing, "__dict__", None)
    return found if isinstance(found, dict) else {}


def _is_optimizer(thing: Any) -> bool:
    """Asked of anything: some are proxies that do not like to be looked at."""
    try:
        return isinstance(thing, Optimizer)
    except Exception:
        return False
