"""What people use today, on the same models: `watch(name, model)` gives a function to be called after every step."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Ended = Callable[[int], Any]
NEEDS = {
    "plain hooks": "torch",
    "anomaly mode": "torch",
    "underflow check": "transformers",
    "TensorBoard": "tensorboard",
    "wandb.watch": "wandb",
}
"""The package that each needs; what is not installed is left out."""


def installed() -> list[str]:
    return [name for name, package in NEEDS.items() if importlib.util.find_spec(package)]


def watch(name: str, model: nn.Module) -> Ended:
    made: Ended = {
        "plain hooks": _hooks, "anomaly mode": _anomaly, "underflow check": _underflow,
        "TensorBoard": _tensorboard, "wandb.watch": _wandb,
    }[name](model)  # fmt: skip
    return made


def _hooks(model: nn.Module) -> Ended:
    """Min, max, mean and norm of every module output, its gradient, every parameter and its gradient, in every step."""
    seen: dict[str, tuple[float, ...]] = {}
    file = tempfile.TemporaryFile("w")  # noqa: SIM115 (it lives as long as the process)

    def note(site: str, tensor: Tensor) -> None:
        tensor = tensor.detach()
        seen[site] = (tensor.min().item(), tensor.max().item(), tensor.mean().item(), tensor.norm().item())

    def forward(site: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, out: Tensor) -> None:
            note(site, out)
            if out.requires_grad:
                out.register_hook(lambda gradient: note(f"{site} gradient", gradient))

        return hook

    for name, module in model.named_modules():
        module.register_forward_hook(forward(name))

    def ended(step: int) -> None:
        for name, parameter in model.named_parameters():
            note(name, parameter)
            if parameter.grad is not None:
                note(f"{name} gradient", parameter.grad)
        file.write(json.dumps(seen) + "\n")
        seen.clear()

    return ended


def _anomaly(model: nn.Module) -> Ended:
    """NaN in the backward pass, with the forward line."""
    torch.autograd.set_detect_anomaly(True)
    return lambda step: None


def _underflow(model: nn.Module) -> Ended:
    """Smallest and largest magnitude of the inputs, outputs and weights of modules: Hugging Face's."""
    from transformers.debug_utils import DebugUnderflowOverflow

    kept = DebugUnderflowOverflow(model, max_frames_to_save=200)
    return lambda step: kept


def _tensorboard(model: nn.Module) -> Ended:
    """A histogram of every parameter and its gradient, in every step."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(tempfile.mkdtemp())

    def ended(step: int) -> None:
        for name, parameter in model.named_parameters():
            writer.add_histogram(name, parameter, step)
            if parameter.grad is not None:
                writer.add_histogram(f"{name} gradient", parameter.grad, step)

    return ended


def _wandb(model: nn.Module) -> Ended:
    """The same by W&B, offline."""
    import wandb

    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    run = wandb.init(dir=tempfile.mkdtemp(), project="benchmark")
    run.watch(model, log="all", log_freq=1)
    return lambda step: run.log({"step": step})
