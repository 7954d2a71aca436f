"""Polynomial regression without an optimizer, in the manner of pytorch/examples."""

import torch
import torch.nn.functional as F
from fingerprint import report
from torch import nn

torch.manual_seed(0)
target_weight, target_bias = torch.randn(4, 1) * 5, torch.randn(1) * 5


def batch(size=32):
    x = torch.randn(size).unsqueeze(1)
    features = torch.cat([x**i for i in range(1, 5)], 1)
    return features, features.mm(target_weight) + target_bias.item()


fc = nn.Linear(4, 1)
for step in range(600):
    features, y = batch()
    fc.zero_grad()
    loss = F.smooth_l1_loss(fc(features), y)
    loss.backward()
    for p in fc.parameters():
        p.data.add_(-0.1 * p.grad)
    if step % 100 == 0:
        print(step, loss.item())
report(fc)
