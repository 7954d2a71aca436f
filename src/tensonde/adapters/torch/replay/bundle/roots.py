"""The modules that a step called, by the root that they belong to: what they are, their state, and how it is put back.

Beside parameters and buffers, a module's plain attributes are state: `training`, a dropout's `p`, a counter, a tensor
that is no buffer. A module that was built anew by the script has those of its first step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tensonde.adapters.torch.replay.bundle.tensors import Contents, Gathered
from tensonde.adapters.torch.tensors import dtype_name
from tensonde.errors import RecordingError

_INTERNAL = frozenset(nn.Module().__dict__) - {"training"}


def class_name(module: nn.Module) -> str:
    kind = type(module)
    return f"{kind.__module__}.{kind.__qualname__}"


def describe(name: str, prefix: str, root: nn.Module, tensors: Gathered) -> dict[str, Any]:
    """For the document; the tensors go to `tensors`. Raises Unsaveable."""
    parameters, buffers, attributes, values = {}, {}, {}, {}
    for path, parameter in root.named_parameters():
        stored = tensors.add(f"state/{name}/{path}", parameter)
        parameters[path] = {"tensor": stored, "trainable": parameter.requires_grad, **_form(parameter)}
    for path, buffer in root.named_buffers():
        stored = tensors.add(f"state/{name}/{path}", buffer)
        buffers[path] = {"tensor": stored, **_form(buffer)}
    for path, module in root.named_modules():
        plain = {key: value for key, value in _attributes(module) if _is_plain(value)}
        attributes[path] = plain
        for key, value in _attributes(module):
            if type(value) is Tensor and value.grad_fn is None:
                values[f"{path}.{key}" if path else key] = tensors.value(value)
    return {
        "name": name, "prefix": prefix, "class": class_name(root), "parameters": parameters, "buffers": buffers,
        "attributes": attributes, "values": values,
    }  # fmt: skip


def _form(tensor: Tensor) -> dict[str, Any]:
    return {"shape": list(tensor.shape), "dtype": dtype_name(tensor)}


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for key, value in list(vars(module).items()):
        if key not in _INTERNAL:
            yield key, value


def _is_plain(value: Any) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int) or (type(value) is str and len(value) < 1000)


def differs(entry: Mapping[str, Any], root: nn.Module) -> str:
    """Why this cannot be the module that the bundle means; "" if it can."""
    name = entry["name"]
    if class_name(root).rpartition(".")[2] != entry["class"].rpartition(".")[2]:
        return f"{name} is a {class_name(root)} here, and was a {entry['class']} when the bundle was made"
    here = dict(root.named_parameters())
    missing = [path for path in entry["parameters"] if path not in here]
    added = [path for path in here if path not in entry["parameters"]]
    if missing or added:
        what = (
            f"has no parameter {missing[0]!r}" if missing else f"has a parameter {added[0]!r} that is not in the bundle"
        )
        return f"{name} {what}"
    for path, parameter in here.items():
        if is_lazy(parameter):
            continue
        was = entry["parameters"][path]["shape"]
        if list(parameter.shape) != was:
            return f"{name}'s parameter {path!r} has the shape {list(parameter.shape)} here, and {was} in the bundle"
    return ""


def restore(entry: Mapping[str, Any], root: nn.Module, contents: Contents) -> None:
    """Gives the module the state of the bundle. Raises RecordingError."""
    try:
        with torch.no_grad():
            parameters = dict(root.named_parameters())
            for path, facts in entry["parameters"].items():
                _fill(parameters[path], contents.plain(facts["tensor"]))
                parameters[path].requires_grad_(bool(facts["trainable"]))
            buffers = dict(root.named_buffers())
            for path, facts in entry["buffers"].items():
                content = contents.plain(facts["tensor"])
                if path in buffers and buffers[path].shape == content.shape:
                    _fill(buffers[path], content)
                else:  # made in a forward: a cache, say
                    owner, _, name = path.rpartition(".")
                    root.get_submodule(owner)._buffers[name] = content.clone()
            modules = dict(root.named_modules())
            for path, plain in entry["attributes"].items():
                for key, value in plain.items():
                    held = modules[path].__dict__
                    if key in held and key not in _INTERNAL and _is_plain(held[key]) and _is_plain(value):
                        held[key] = value
            for path, tensor in entry["values"].items():
                owner, _, name = path.rpartition(".")
                held = modules[owner].__dict__
                if name not in _INTERNAL and (name not in held or held[name] is None or isinstance(held[name], Tensor)):
                    held[name] = contents.tensor(tensor)
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise RecordingError(f"the state of {entry['name']} cannot be put back: {error}.") from None


def _fill(tensor: Tensor, content: Tensor) -> None:
    if is_lazy(tensor):
        tensor.materialize(tuple(content.shape))
    if tensor.dtype == content.dtype:
        tensor.copy_(content)
    else:
        tensor.data = content.to(tensor.device)
