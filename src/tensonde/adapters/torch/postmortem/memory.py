"""Memory has run out: what holds it, by kind, from what the program can still be asked when the exception has ended it, and what would fit."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.memory.fitting import fitting
from tensonde.adapters.torch.memory.keepers import keepers
from tensonde.adapters.torch.observers.graphs import resident
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.postmortem.roots import root_call
from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.adapters.torch.replay.restore.writes import storage_of
from tensonde.adapters.torch.tensors import gradient_of, tensors_in

MESSAGES = r"out of memory|can't allocate memory|not enough memory"
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_UNLIMITED = 1 << 60


def memory(failure: Failure) -> dict[str, Any] | None:
    """Bytes. `rest` is what nobody of these holds: activations, most of all, which autograd keeps for the backward pass."""
    host = "CPUAllocator" in failure.message
    device = torch.device("cpu") if host else torch.accelerator.current_accelerator()
    if device is None:
        return None
    state, seen = failure.state, set[int]()
    live = [parameter for _, parameter in state.parameters.live()]
    held = [p for o in list(KNOWN.optimizers) for group in o.param_groups for p in group["params"]]
    roots = list(state.roster.roots.values())
    fact: dict[str, Any] = {
        "device": "the host" if host else device.type,
        "used": resident() << 20 if host else int(torch.accelerator.memory_allocated()),
        "wanted": _said(failure.message, r"tried to allocate ([\d.]+) (\w+)"),
        "capacity": _room() if host else _said(failure.message, r"total capacity of ([\d.]+) (\w+)"),
        "parameters": _bytes([*live, *held], seen, device),
        "gradients": _bytes([g for p in (*live, *held) if (g := gradient_of(p)) is not None], seen, device),
        "optimizer": _bytes(_states(), seen, device),
        "buffers": _bytes([b for root in roots for b in root.buffers()], seen, device),
        "step": state.step,
    }
    found = root_call(failure)
    batch = tensors_in((found[0].args, found[0].kwargs))[:1] if found is not None else []
    fact["data"] = _bytes(batch, seen, device)
    fact["holders"] = keepers(reversed(failure.user), seen, device=device.type)
    fact["held"] = sum(holder["bytes"] for holder in fact["holders"])
    known = sum(fact[kind] for kind in ("parameters", "gradients", "optimizer", "buffers", "data", "held"))
    fact["rest"] = max(0, fact["used"] - known)
    fact["batch"] = list(batch[0].shape) if batch else None
    fact["history"] = failure.memory.used[-64:] if not host else []
    fact["growth"] = failure.memory.growth() if not host else 0
    if found is not None and fact["capacity"]:
        fact["fitting"] = fitting(found[0].module, found[0].args, found[0].kwargs, fact, failure.named)
    return fact


def _said(message: str, pattern: str) -> int | None:
    found = re.search(pattern, message, re.IGNORECASE)
    return int(float(found[1]) * _UNITS[found[2]]) if found and found[2] in _UNITS else None


def _room() -> int | None:
    """What this process may take of the host's memory: its own limit, that of its group, or all there is."""
    rooms = [resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_DATA)[0]]
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(file).read_text().strip()
            rooms.append(int(text) if text.isdigit() else -1)
        except OSError:
            continue
    limited = [room for room in rooms if 0 < room < _UNLIMITED]
    return min(limited) if limited else None


def _states() -> Iterator[Tensor]:
    for optimizer in list(KNOWN.optimizers):
        for state in list(optimizer.state.values()):
            yield from tensors_in(state)


def _bytes(tensors: Iterable[Tensor], seen: set[int], device: torch.device) -> int:
    """Of memory that was not counted before."""
    total = 0
    for tensor in tensors:
        if tensor.device.type == device.type and tensor.layout is torch.strided:
            key = storage_of(tensor)
            if key not in seen:
                seen.add(key)
                total += int(tensor.untyped_storage().nbytes())
    return total
