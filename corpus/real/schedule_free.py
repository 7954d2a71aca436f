"""schedulefree, lion, prodigy: optimizers from PyPI, one with its own train/eval modes."""

# needs: schedulefree lion-pytorch prodigyopt ema-pytorch
import schedulefree
import torch
from ema_pytorch import EMA
from fingerprint import report
from lion_pytorch import Lion
from prodigyopt import Prodigy
from torch import nn

torch.manual_seed(0)
x = torch.randn(512, 10)
y = torch.sin(x[:, :1] * 2) + 0.1 * torch.randn(512, 1)
for make in (
    lambda p: schedulefree.AdamWScheduleFree(p, lr=5e-3, warmup_steps=10),
    lambda p: Lion(p, lr=1e-3),
    lambda p: Prodigy(p, lr=1.0),
):
    net = nn.Sequential(nn.Linear(10, 64), nn.SiLU(), nn.Linear(64, 1))
    opt = make(net.parameters())
    ema = EMA(net, beta=0.99, update_every=1)
    for i in range(150):
        if hasattr(opt, "train"):
            opt.train()
        j = torch.randint(0, 512, (64,))
        loss = nn.functional.mse_loss(net(x[j]), y[j])
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update()
        if i % 50 == 49:
            if hasattr(opt, "eval"):
                opt.eval()
            with torch.no_grad():
                print(i, f"{nn.functional.mse_loss(net(x), y).item():.6f}")
report(net, ema, opt)
