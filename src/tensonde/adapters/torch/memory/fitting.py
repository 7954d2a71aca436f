"""What would make a training fit that has run out of memory: a smaller batch, checkpointing of a module, autocast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from tensonde.adapters.torch.memory.account import Account, bytes_of, use_of
from tensonde.adapters.torch.memory.imagined import NotImagined, imagined
from tensonde.adapters.torch.memory.ledger import BEFORE, Held
from tensonde.adapters.torch.memory.scaling import part_of
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.model.memory import largest, peak_of

MOST_MODULES = 6
ASIDE = 0.03
"""Of the device: for the loss and what else the script computes, which is not gone through."""


def fitting(
    module: nn.Module, args: Any, kwargs: Any, fact: Mapping[str, Any], named: Callable[[nn.Module], tuple[str, str]]
) -> dict[str, Any]:
    """Bytes: `peak` with the batch as it is, `fits` samples would fit, what checkpointing a module saves, what autocast saves at most."""
    tensors = tensors_in((args, kwargs))
    shapes = [tensor for tensor in tensors if tensor.dim()]
    if not shapes or shapes[0].shape[0] < 2:
        return {"why": "the batch is not known"}
    batch = int(shapes[0].shape[0])
    half = batch // 2
    try:
        whole = imagined(module, args, kwargs, batch, batch, named)
        smaller = imagined(module, args, kwargs, batch, half, named)
    except (NotImagined, RuntimeError) as why:
        return {"why": str(why)[:200]}
    device = str(shapes[0].device)
    sizes = {held.key: held.bytes for held in smaller.held}

    def share(held: Held) -> float:
        return 0.0 if held.op == BEFORE else part_of(held, sizes, batch, half)

    before = sum(bytes_of(held) for held in whole.held if held.op == BEFORE and held.device == device)
    account = Account(whole, device, [])
    trained = sum(p.numel() * p.element_size() for p in module.parameters() if p.requires_grad)
    # Gradients are made within the passes; what else is there stays, but for data, which is as large as its batch.
    fixed = fact["parameters"] + fact["buffers"] + fact["optimizer"] + _kept(fact) - before
    each = fact["data"] / batch
    envelope = [(line[0] + fixed, line[1] + each) for line in account.envelope(batch, share)]
    envelope.append((fact["parameters"] + fact["buffers"] + fact["optimizer"] + _kept(fact) + trained, each))
    peak = peak_of(envelope, batch)
    return {
        "batch": batch,
        "peak": peak,
        "fits": largest(envelope, round(fact["capacity"] * (1 - ASIDE))),
        "modules": _saved(account, module, named),
        "autocast": _halved(account),
    }


def _kept(fact: Mapping[str, Any]) -> int:
    """Variables that keep tensors of several steps; others hold what the passes make anew."""
    return sum(holder["bytes"] for holder in fact["holders"] if holder["tensors"] > 1 and holder["line"])


def _saved(account: Account, root: nn.Module, named: Callable[[nn.Module], tuple[str, str]]) -> list[dict[str, Any]]:
    """What the peak loses when a module is checkpointed: activations inside it. Modules that are in a list, or children of the root, count."""
    alive = [(held, bytes_of(held)) for held in account.alive(account.at) if use_of(held) == "activations"]
    found: list[dict[str, Any]] = []
    for path, part in root.named_modules():
        parent = root.get_submodule(path.rpartition(".")[0]) if path else None
        if parent is None or not (parent is root or isinstance(parent, nn.ModuleList | nn.Sequential)):
            continue
        name, kind = named(part)
        inside = sum(n for held, n in alive if held.place.module == name or held.place.module.startswith(f"{name}."))
        if inside and next(part.children(), None) is not None:
            found.append({"module": name, "type": kind, "bytes": inside})
    return sorted(found, key=lambda one: int(one["bytes"]), reverse=True)[:MOST_MODULES]


def _halved(account: Account) -> int:
    """At most: half of the activations in float32."""
    return (
        sum(bytes_of(h) for h in account.alive(account.at) if use_of(h) == "activations" and h.dtype == "float32") // 2
    )
