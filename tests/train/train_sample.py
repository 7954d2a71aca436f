"""A small training that several tests of the companions use."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parts(seed: int = 0) -> tuple[nn.Module, nn.Module, torch.optim.Optimizer, DataLoader[Any]]:
    """Network, loss function, optimizer and 4 batches; the same each time."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 2))
    x = torch.randn(32, 4)
    y = (x[:, 0] > x[:, 1]).long()
    loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
    return network, nn.CrossEntropyLoss(), torch.optim.Adam(network.parameters(), lr=0.01), loader


def weights(network: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in network.parameters()]


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def by_hand(epochs: int = 2) -> tuple[list[torch.Tensor], list[float]]:
    """The loop that one would write, without anything of Tensonde's: final weights and losses."""
    network, loss_fn, optimizer, loader = parts()
    losses = []
    network.train()
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_fn(network(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return weights(network), losses
