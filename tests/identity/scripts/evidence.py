"""What a training leaves behind, down to the last bit: losses, weights, buffers, optimizer states, RNG states, settings."""

import hashlib
import json
import os
import pickle
import random

import numpy as np
import torch


def seed(number=0):
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


def digest(value):
    if isinstance(value, torch.Tensor):
        dense = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
        raw = dense.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(raw).hexdigest()}"
    if isinstance(value, dict):
        return {str(key): digest(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [digest(item) for item in value]
    return repr(value)


def leave(losses, modules, optimizers, **more):
    """`losses` are floats, written exactly."""
    found = {
        "losses": [float(loss).hex() for loss in losses],
        "modules": {name: digest(dict(module.state_dict())) for name, module in modules.items()},
        "gradients": {
            f"{name}.{path}": digest(parameter.grad)
            for name, module in modules.items()
            for path, parameter in module.named_parameters()
        },
        "optimizers": [digest(optimizer.state_dict()) for optimizer in optimizers],
        "rng": {
            "torch": digest(torch.get_rng_state()),
            "numpy": hashlib.sha256(pickle.dumps(np.random.get_state())).hexdigest(),
            "random": hashlib.sha256(pickle.dumps(random.getstate())).hexdigest(),
        },
        "settings": {
            "threads": torch.get_num_threads(),
            "interop": torch.get_num_interop_threads(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "grad": torch.is_grad_enabled(),
            "dtype": str(torch.get_default_dtype()),
            "device": str(torch.get_default_device()),
            "autocast": torch.is_autocast_enabled("cpu"),
            "anomaly": torch.is_anomaly_enabled(),
        },
        "more": digest(more),
    }
    with open(os.environ["RESULT"], "w") as file:
        json.dump(found, file, indent=1)
    print("losses", [round(float(loss), 6) for loss in losses])
