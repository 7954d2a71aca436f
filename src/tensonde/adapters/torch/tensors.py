"""Finding tensors in what modules take and give, and the plain values that stand for each.

`values_of` is the one place that knows kinds of tensors: sparse, nested, quantised, without values (meta, fake, lazy, inside
torch.func), and subclasses that hold their values in a tensor inside (DTensor, torchao's). Everything that reads a tensor asks it.
Nothing here calls the ops of a subclass, and no mode of the user's sees what is done.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._C import _functorch
from torch.nn.parameter import is_lazy

from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.model.site import Part

MOST = 64
"""How many tensors of one nested value are looked at."""
_DEPTH = 6


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in nested tuples, lists, dicts, dataclasses and named tuples, in order."""
    if isinstance(value, Tensor):  # what most calls give
        return [value]
    found: list[Tensor] = []
    _collect(value, found, _DEPTH)
    return found


def dense_in(value: Any) -> list[Tensor]:
    """Those among them that are strided and hold their values themselves: what can be sliced, compared and summed."""
    return [tensor for tensor in tensors_in(value) if is_dense(tensor)]


def _collect(value: Any, found: list[Tensor], depth: int) -> None:
    if isinstance(value, Tensor):
        if len(found) < MOST:
            found.append(value)
    elif depth == 0 or isinstance(value, str | bytes | int | float | torch.nn.Module):
        return
    elif isinstance(value, list | tuple):
        for item in value[:MOST]:
            _collect(item, found, depth - 1)
    elif isinstance(value, Mapping):
        for item in list(value.values())[:MOST]:
            _collect(item, found, depth - 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _collect(getattr(value, field.name, None), found, depth - 1)


def gradient_of(tensor: Tensor) -> Tensor | None:
    """Its `.grad`. A parameter that a library replaced by the result of ops is no leaf: it has none, and torch warns whoever asks."""
    return tensor.grad if tensor.is_leaf or tensor.retains_grad else None


def dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def device_name(tensor: Tensor) -> str:
    """Empty for the host's memory, which needs no mention."""
    return "" if tensor.device.type == "cpu" else str(tensor.device)


_ORDINARY = frozenset({Tensor, nn.Parameter, nn.Buffer})
_OWN_DISPATCH = Tensor.__torch_dispatch__
_transformed = _functorch.maybe_current_level


def is_plain(tensor: Tensor) -> bool:
    """The kernel can read it as it is."""
    return (
        type(tensor) in _ORDINARY
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and _readable(tensor)
    )


def is_dense(tensor: Any) -> bool:
    """An ordinary strided tensor, on any device, whose memory holds its values."""
    return type(tensor) in _ORDINARY and tensor.layout is torch.strided and _readable(tensor)


def values_of(tensor: Tensor) -> Tensor | None:
    """A strided tensor with the values of this one, the tensor itself where it is one; None where it has none that can be read.

    Of a sparse tensor these are the values that it holds, of a nested one those of all its parts, of a distributed one those of
    this rank. The shape may be another."""
    kind = type(tensor)
    if kind in _ORDINARY:
        if is_dense(tensor):
            return tensor
        if tensor.device.type == "meta" or (
            _transformed() is not None and _functorch.is_functorch_wrapped_tensor(tensor)
        ):
            return None
        inner = _taken_out
    elif is_lazy(tensor):
        return None
    elif kind.__torch_dispatch__ is not _OWN_DISPATCH:
        inner = _inside
    else:
        inner = _of_subclass
    try:
        with unseen(), torch.no_grad():
            return inner(tensor)
    except Exception:  # a kind of tensor that does not let itself be looked at
        return None


def _readable(tensor: Tensor) -> bool:
    """Of a strided tensor: whether its memory holds its values."""
    return not (
        tensor.is_quantized
        or tensor.is_nested
        or tensor.device.type == "meta"
        or _functorch.is_functorch_wrapped_tensor(tensor)
    )


def _taken_out(tensor: Tensor) -> Tensor | None:
    """Of torch's own kinds of tensors that are not strided."""
    held = tensor.detach()
    if held.is_quantized:
        return held.dequantize()
    if held.is_sparse:
        return held.coalesce().values()
    if held.is_nested or held.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        return held.values()
    return held.to_dense()


def _of_subclass(tensor: Tensor) -> Tensor | None:
    """A subclass without a dispatch of its own: its values are its own."""
    return values_of(tensor.as_subclass(Tensor))


def _inside(tensor: Tensor) -> Tensor | None:
    """A subclass that holds other tensors: the one of them that has its values, where one has."""
    if hasattr(tensor, "_masked_data") and hasattr(tensor, "_masked_mask"):
        data = values_of(tensor._masked_data)
        return data[tensor._masked_mask] if data is not None else None
    if getattr(tensor, "completed", True) is False:  # a collective that is under way
        return None
    if not hasattr(tensor, "__tensor_flatten__"):
        return None
    names, _ = tensor.__tensor_flatten__()
    held = [getattr(tensor, name) for name in names]
    if type(tensor).__module__.startswith(
        "torch."
    ):  # DTensor and nested tensors hold what is here first, in another shape
        return values_of(held[0])
    fitting = [one for one in held if one.dtype == tensor.dtype and one.shape == tensor.shape]
    return values_of(fitting[0]) if len(fitting) == 1 else None


def without_values(tensor: Tensor) -> str:
    """Why a tensor could not be digested, for the coverage."""
    if tensor.is_quantized:
        return "quantized tensors of this kind have no digest"
    if tensor.device.type == "meta" or hasattr(tensor, "fake_mode"):
        return "a meta or fake tensor has no values"
    if _transformed() is not None:
        return "runs inside torch.func"
    kind = type(tensor).__name__
    if type(tensor) in _ORDINARY:
        kind = str(tensor.layout).removeprefix("torch.").replace("_", " ").removeprefix("strided") or "such"
        return f"{kind} tensors of {dtype_name(tensor)} have no digest"
    return f"{kind} does not show its values"


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """Its shape in plain numbers; -1 where a size differs from part to part."""
    try:
        with torch._C.DisableTorchFunction():
            if tensor.is_nested:
                return tuple(_size(tensor, dim) for dim in range(tensor.dim()))
            return tuple(size if isinstance(size, int) else -1 for size in tensor.shape)
    except Exception:
        return ()


def part_of(tensor: Tensor) -> Part | None:
    """How this rank holds a distributed tensor (DTensor); None for any other."""
    mesh = getattr(tensor, "device_mesh", None) if type(tensor) not in _ORDINARY else None
    if mesh is None:
        return None
    placements = tuple("S" if one.is_shard() else "R" if one.is_replicate() else "P" for one in tensor.placements)
    return Part(placements, tuple(mesh.shape), tuple(mesh.get_coordinate() or (0,) * mesh.ndim))


def _size(nested: Tensor, dim: int) -> int:
    try:
        size = nested.size(dim)
    except RuntimeError:
        return -1
    return int(size) if type(size) is int else -1


def version_of(tensor: Any) -> int:
    """How often it was changed in place; 0 where that is not counted, and for what is no tensor."""
    return int(tensor._version) if isinstance(tensor, Tensor) and not tensor.is_inference() else 0


def bytes_of(tensor: Tensor) -> int:
    """How much memory its values take; 0 where that is not known."""
    try:
        with torch._C.DisableTorchFunction():
            return int(int(tensor.numel()) * tensor.element_size())
    except Exception:
        return 0


def raw_bytes(tensor: Tensor) -> tuple[bytes, str, tuple[int, ...]]:
    """The bytes of a tensor with the name of its dtype and its shape, for the recording."""
    view, dtype, shape = raw_view(tensor)
    return view.tobytes(), dtype, shape


def raw_view(tensor: Tensor) -> tuple[memoryview, str, tuple[int, ...]]:
    """The same without a copy, where the tensor lies in memory as it should; it is good as long as the tensor is not
    changed."""
    found = dense_of(tensor)
    if found is None:
        raise ValueError(f"{type(tensor).__name__}: {without_values(tensor)}")
    with unseen(), torch.no_grad():
        plain = found.detach().resolve_conj().resolve_neg().cpu().contiguous()
        # A dimension of 1 may have any stride and still be contiguous, which a view as bytes does not like.
        flat = plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)
        return memoryview(array_of(flat)), dtype_name(plain), tuple(plain.shape)


def array_of(tensor: Tensor) -> Any:
    """A CPU tensor as an array that shares its memory. `Tensor.numpy()` would do the same and forbid the program for good to resize
    that memory, as FSDP does."""
    with unseen():
        return np.from_dlpack(tensor.detach())


def dense_of(tensor: Tensor) -> Tensor | None:
    """As `values_of`, but a sparse tensor comes with its zeros, in its shape."""
    if tensor.layout is torch.strided or tensor.is_nested or type(tensor) not in _ORDINARY:
        return values_of(tensor)
    try:
        with unseen(), torch.no_grad():
            return tensor.detach().to_dense()
    except Exception:
        return values_of(tensor)


def shown(tensor: Tensor) -> Tensor | None:
    """What can be kept of a tensor and be looked at later, by reference where it may; None where it has no values."""
    found = values_of(tensor)
    if found is None:
        return None
    with unseen(), torch.no_grad():
        return tensor.detach() if type(tensor) in _ORDINARY and not tensor.is_nested else found.detach()
