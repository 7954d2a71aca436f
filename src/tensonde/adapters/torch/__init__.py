"""PyTorch: what runs is observed through `nn.Module.__call__`, tensor hooks, and the optimizers' own hooks."""

import torch
from torch import Tensor, nn

from tensonde.program.frames import register
from tensonde.program.values import Kind
from tensonde.program.values import register as register_kinds

register("torch", torch.__file__)
register_kinds(
    Kind(
        Tensor,
        attributes=("shape", "T", "dtype", "device", "mT", "ndim", "data"),
        methods=("size", "dim", "numel"),
        indexed=True,
        sized=True,
    ),
    Kind(nn.Module, tables=("_parameters", "_buffers", "_modules"), calls="forward"),
    *(Kind(container, indexed=True) for container in (nn.ModuleList, nn.ModuleDict, nn.Sequential)),
)
