"""Opacus: per-sample gradients by hooks, noise, Poisson sampling, virtual steps."""

# needs: opacus
import warnings

warnings.simplefilter("ignore")
import torch
from fingerprint import report
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(512, 10)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
opt = torch.optim.SGD(model.parameters(), 0.5)
engine = PrivacyEngine()
model, opt, loader = engine.make_private(
    module=model,
    optimizer=opt,
    data_loader=DataLoader(TensorDataset(x, y), 64),
    noise_multiplier=0.6,
    max_grad_norm=1.0,
)
for epoch in range(6):
    for a, b in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(a), b)
        loss.backward()
        opt.step()
    print(epoch, f"{loss.item():.6f}")
report(model, opt.original_optimizer)
