"""From what a loader gives to what a network and a loss function take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensonde.errors import UsageError


def device_of(network: Any) -> Any:
    """Of the network's first parameter or buffer; None without any."""
    for tensor in (*network.parameters(), *network.buffers()):
        return tensor.device
    return None


def moved(value: Any, device: Any) -> Any:
    """The same, with every tensor on the device."""
    if device is None:
        return value
    if hasattr(value, "to"):
        return value.to(device)
    if isinstance(value, Mapping):
        return {name: moved(item, device) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(item, device) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(moved(item, device) for item in value)
    return value


def outcome(network: Any, loss_fn: Any, batch: Any) -> tuple[Any, Any, Any]:
    """The network's output, the labels and the loss of one batch; the last two None where there are none.

    With a loss function the last element of a batch (or the entry `labels` of a dictionary) is its second argument.
    Without one, the network gives the loss itself: as its output, its first output, or its output's `loss`.
    """
    if isinstance(batch, Mapping):
        labels = batch.get("labels", batch.get("label"))
        if loss_fn is None:
            output = network(**batch)
            return output, labels, own_loss(output)
        output = network(**{name: value for name, value in batch.items() if value is not labels})
        return output, labels, loss_fn(output, labels)
    parts = tuple(batch) if isinstance(batch, list | tuple) else (batch,)
    if loss_fn is None:
        output = network(*parts)
        return output, parts[-1] if len(parts) > 1 else None, own_loss(output)
    if len(parts) < 2:
        raise UsageError(
            f"the loader gives {type(batch).__name__} and not (input, label), which the loss function needs; give pairs, "
            "or make the network return its loss and leave loss_fn out."
        )
    output = network(*parts[:-1])
    return output, parts[-1], loss_fn(output, parts[-1])


def own_loss(output: Any) -> Any:
    """The loss that a network gives by itself; None where its output is none."""
    if getattr(output, "loss", None) is not None:
        return output.loss
    if isinstance(output, Mapping):
        return output.get("loss")
    if isinstance(output, tuple | list) and output:
        output = output[0]
    return output if getattr(output, "ndim", None) == 0 else None
