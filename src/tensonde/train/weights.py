"""A checkpoint on disk: one safetensors file with the network's tensors and, if wanted, the optimizer's.

Written beside its place and moved there when it is whole: a kill leaves the old file or the new one. Nothing is
unpickled. The optimizer's tensors are named `optimizer/<parameter>/<what>`; its numbers are in the metadata.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensonde.errors import UsageError

_OPTIMIZER = "optimizer/"


def save_checkpoint(
    save_obj: Any, ckpt_file_name: str | Path, *, optimizer: Any = None, append: Mapping[str, Any] | None = None
) -> Path:
    """Saves a module (or a dictionary of tensors), and perhaps its optimizer. `append` holds plain facts for the metadata.

    Raises OSError as it comes; a file that was there before then stays as it was.
    """
    from safetensors.torch import save

    state = save_obj if isinstance(save_obj, Mapping) else save_obj.state_dict()
    tensors, facts = _tensors(state)
    metadata = {"tensonde": "1", **{name: json.dumps(value) for name, value in {**facts, **(append or {})}.items()}}
    if optimizer is not None:
        more, numbers = _optimizer_out(optimizer)
        tensors.update(more)
        metadata["optimizer"] = json.dumps(numbers)
    path = Path(ckpt_file_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(draft, "wb") as file:
            file.write(save(tensors, metadata))
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def load_checkpoint(ckpt_file_name: str | Path, net: Any = None, optimizer: Any = None) -> dict[str, Any]:
    """The network's tensors by name; put into `net`, and into `optimizer` what was saved of it, where they are given."""
    from safetensors import SafetensorError, safe_open

    tensors: dict[str, Any] = {}
    try:
        with safe_open(str(ckpt_file_name), "pt") as file:
            metadata = file.metadata() or {}
            for name in file.keys():  # noqa: SIM118  no dictionary
                tensors[name] = file.get_tensor(name)
    except FileNotFoundError:
        raise UsageError(f"there is no checkpoint {ckpt_file_name}.") from None
    except SafetensorError as problem:
        raise UsageError(
            f"{ckpt_file_name} cannot be read as a safetensors checkpoint: {str(problem).rstrip('.')}."
        ) from None
    weights = {name: value for name, value in tensors.items() if not name.startswith(_OPTIMIZER)}
    if net is not None:
        net.load_state_dict(weights)
    if optimizer is not None:
        if "optimizer" not in metadata:
            raise UsageError(f"{ckpt_file_name} holds no optimizer; save it with save_checkpoint(..., optimizer=...).")
        optimizer.load_state_dict(_optimizer_in(json.loads(metadata["optimizer"]), tensors))
    return weights


def _tensors(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors as safetensors takes them, each with memory of its own; and what is no tensor, for the metadata."""
    import torch

    tensors: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    taken: set[int] = set()
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            kept = value.detach().cpu().contiguous()
            place = kept.untyped_storage().data_ptr()
            tensors[name] = kept.clone() if place in taken else kept
            taken.add(place)
        else:
            facts[f"extra.{name}"] = value
    return tensors, facts


def _optimizer_out(optimizer: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    import torch

    state = optimizer.state_dict()
    found: dict[str, Any] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for key, entries in state["state"].items():
        numbers[str(key)] = {}
        for name, value in entries.items():
            if isinstance(value, torch.Tensor):
                found[f"{_OPTIMIZER}{key}/{name}"] = value
            else:
                numbers[str(key)][name] = value
    groups = [
        {name: _plain(value) for name, value in group.items() if name == "params" or _plain(value) is not None}
        for group in state["param_groups"]
    ]
    return _tensors(found)[0], {"state": numbers, "param_groups": groups}


def _plain(value: Any) -> Any:
    """As JSON holds it; None where it cannot, such as for a hook."""
    try:
        json.dumps(value)
    except TypeError:
        return float(value) if hasattr(value, "item") and getattr(value, "numel", lambda: 0)() == 1 else None
    return value


def _optimizer_in(numbers: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    state: dict[int, dict[str, Any]] = {int(key): dict(entries) for key, entries in numbers["state"].items()}
    for name, value in tensors.items():
        if name.startswith(_OPTIMIZER):
            key, _, what = name[len(_OPTIMIZER) :].partition("/")
            state.setdefault(int(key), {})[what] = value
    groups = [
        {**group, "betas": tuple(group["betas"])} if isinstance(group.get("betas"), list) else group
        for group in numbers["param_groups"]
    ]
    return {"state": state, "param_groups": groups}
