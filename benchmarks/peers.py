"""What people use today, on the same models: `watch(name, ...)` gives a function to be called after every step.

    python benchmarks/peers.py FOLDER                   makes an environment there for every peer that installs from PyPI
    python benchmarks/overhead.py --peers FOLDER        measures those, bare and watched in the same environment

A worker imports this file in the environment of its peer, where nothing but torch and the peer is certain to be there.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Ended = Callable[[int, float], Any]
"""Called after every step, with its number and its loss."""


@dataclass(frozen=True)
class Peer:
    """`module` is what it is imported as, `packages` what it needs beside torch; `records` says what it does in every step."""

    records: str
    module: str = "torch"
    packages: tuple[str, ...] = ()
    slow: bool = False
    """One step in a turn is long enough, whatever the model."""


PEERS = {
    "plain hooks": Peer("min, max, mean and norm of module outputs, their gradients, parameters and their gradients"),
    "anomaly mode": Peer("NaN in the backward pass, with the forward line"),
    "underflow check": Peer(
        "Hugging Face: smallest and largest magnitude of inputs, outputs and weights", "transformers", ("transformers",)
    ),
    "TensorBoard": Peer("a histogram of every parameter and its gradient", "tensorboard", ("tensorboard",)),
    "wandb.watch": Peer("the same by W&B, offline", "wandb", ("wandb",)),
    "trainscope": Peer(
        "norms and spikes of activations, gradients and weights, by its defaults", "trainscope", ("trainscope",)
    ),
    "msprobe L0": Peer(
        "min, max, mean and norm of what goes into modules and out, of parameters and gradients", "msprobe", ("mindstudio-probe",)
    ),
    "msprobe L1": Peer("the same of calls of the function API", "msprobe", ("mindstudio-probe",), slow=True),
    "smdebug": Peer(
        "min, max, mean and norm of module outputs, parameters and their gradients", "smdebug",
        ("smdebug", "requests", "pandas", "psutil", "pyinstrument", "boto3", "protobuf<4", "numpy<2.3"),
    ),
    "TrainCheck": Peer("calls of torch's API and changes of parameters, by its defaults", "traincheck", ("traincheck",), slow=True),
}  # fmt: skip


def python_of(name: str, folder: Path | None) -> str | None:
    """The interpreter that has this peer; None where it is not installed."""
    peer = PEERS[name]
    if folder is not None and (python := folder / _environment(peer) / "bin" / "python").exists():
        return str(python)
    return sys.executable if importlib.util.find_spec(peer.module) else None


def installed(folder: Path | None) -> list[str]:
    return [name for name in PEERS if python_of(name, folder)]


def _environment(peer: Peer) -> str:
    return peer.module


def install(folder: Path) -> None:
    """An environment for each package, with this torch and what comes with the package. Says which do not install."""
    for peer in {_environment(peer): peer for peer in PEERS.values() if peer.packages}.values():
        home = folder / _environment(peer)
        if (home / "bin" / "python").exists():
            continue
        venv.create(home, with_pip=True)
        python = str(home / "bin" / "python")
        for packages in ((f"torch=={torch.__version__.partition('+')[0]}", "numpy"), peer.packages):
            pip = subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], capture_output=True, text=True)
            if pip.returncode:
                break
        if not pip.returncode:
            pip = subprocess.run([python, "-c", f"import {peer.module}"], capture_output=True, text=True)
        last = (pip.stderr.strip().splitlines() or ["no error"])[-1]
        print(f"{peer.module}: {'installed' if not pip.returncode else last}", flush=True)
        if pip.returncode:
            shutil.rmtree(home)


def watch(name: str, model: nn.Module, optimizer: torch.optim.Optimizer, criterion: nn.Module) -> Ended:
    made: dict[str, Callable[[], Ended]] = {
        "plain hooks": lambda: _hooks(model),
        "anomaly mode": _anomaly,
        "underflow check": lambda: _underflow(model),
        "TensorBoard": lambda: _tensorboard(model),
        "wandb.watch": lambda: _wandb(model),
        "trainscope": lambda: _trainscope(model, optimizer),
        "msprobe L0": lambda: _msprobe(model, "L0"),
        "msprobe L1": lambda: _msprobe(model, "L1"),
        "smdebug": lambda: _smdebug(model, criterion),
        "TrainCheck": lambda: lambda step, loss: None,  # it rewrites the script: see `command`
    }
    with contextlib.redirect_stdout(sys.stderr):  # the answers to overhead.py go there
        return made[name]()


def command(name: str, python: str, script: Path, arguments: list[str], folder: Path) -> list[str]:
    """How a worker with this peer is started."""
    if name != "TrainCheck":
        return [python, str(script), *arguments]
    copied = folder / "traincheck"
    copied.mkdir(parents=True, exist_ok=True)
    for file in (script, script.parent / "models.py", script.parent / "peers.py"):
        shutil.copy(file, copied)
    collect = [str(Path(python).parent / "traincheck-collect"), "--pyscript", str(copied / script.name)]
    return [
        *collect,
        "--output-dir",
        str(copied / "trace"),
        "--models-to-track",
        "model",
        "--model-tracker-style",
        "proxy",
    ]


def _hooks(model: nn.Module) -> Ended:
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

    def ended(step: int, loss: float) -> None:
        for name, parameter in model.named_parameters():
            note(name, parameter)
            if parameter.grad is not None:
                note(f"{name} gradient", parameter.grad)
        file.write(json.dumps(seen) + "\n")
        seen.clear()

    return ended


def _anomaly() -> Ended:
    torch.autograd.set_detect_anomaly(True)
    return lambda step, loss: None


def _underflow(model: nn.Module) -> Ended:
    from transformers.debug_utils import DebugUnderflowOverflow

    kept = DebugUnderflowOverflow(model, max_frames_to_save=200)
    return lambda step, loss: kept


def _tensorboard(model: nn.Module) -> Ended:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(tempfile.mkdtemp())

    def ended(step: int, loss: float) -> None:
        for name, parameter in model.named_parameters():
            writer.add_histogram(name, parameter, step)
            if parameter.grad is not None:
                writer.add_histogram(f"{name} gradient", parameter.grad, step)

    return ended


def _wandb(model: nn.Module) -> Ended:
    import wandb

    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    run = wandb.init(dir=tempfile.mkdtemp(), project="benchmark")
    run.watch(model, log="all", log_freq=1)
    return lambda step, loss: run.log({"loss": loss})


def _trainscope(model: nn.Module, optimizer: torch.optim.Optimizer) -> Ended:
    from trainscope import TrainScope, TrainScopeConfig

    scope = TrainScope(model, optimizer, TrainScopeConfig(run_dir=tempfile.mkdtemp()))
    scope.attach()
    return lambda step, loss: scope.step(loss)


def _msprobe(model: nn.Module, level: str) -> Ended:
    """Between `start` and `stop` it records; here in every step, from the second on."""
    from msprobe.pytorch import PrecisionDebugger

    folder = Path(tempfile.mkdtemp())
    statistics = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}
    settings = {"task": "statistics", "level": level, "rank": [], "step": [], "statistics": statistics}
    (folder / "config.json").write_text(json.dumps(settings | {"dump_path": str(folder)}))
    debugger = PrecisionDebugger(config_path=str(folder / "config.json"))

    def ended(step: int, loss: float) -> None:
        if step:
            debugger.stop()
            debugger.step()
        debugger.start(model=model)

    return ended


def _smdebug(model: nn.Module, criterion: nn.Module) -> Ended:
    import smdebug.pytorch as smdebug

    hook = smdebug.Hook(
        out_dir=tempfile.mkdtemp() + "/out",
        save_config=smdebug.SaveConfig(save_interval=1),
        reduction_config=smdebug.ReductionConfig(reductions=["min", "max", "mean"], norms=["l2"]),
        include_regex=r".*_output_\d+$|^gradient/.*|.*weight$|.*bias$",  # with everything, it fails on integers
    )
    hook.register_module(model)
    hook.register_loss(criterion)
    return lambda step, loss: hook


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    install(parser.parse_args().folder)


if __name__ == "__main__":
    main()
