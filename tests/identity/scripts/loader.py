"""A DataLoader with two workers, shuffling and random augmentation in the workers, over two epochs."""

import random

import numpy as np
import torch
from evidence import leave, seed
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, k):
        noise = nn.Dropout(0.5)(torch.ones(4)) + np.random.rand() * 0.01 + random.random() * 0.01
        return torch.full((4,), float(k) / 32) * noise, torch.tensor([k % 2])


if __name__ == "__main__":
    seed(12)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adamax(model.parameters(), lr=0.02)
    losses, order = [], []
    loader = DataLoader(Points(), batch_size=8, shuffle=True, num_workers=2)
    for _ in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y.squeeze(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            order.append(x)
    leave(losses, {"model": model}, [optimizer], order=order)
