"""A script with a learning rate and a width to choose: `tensonde tune examples/tuned.py --param lr=log:1e-4:10`."""

import argparse

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    y = x[:, :1] * x[:, 1:2] + x[:, 2:3]
    model = nn.Sequential(nn.Linear(4, options.width), nn.Tanh(), nn.Linear(options.width, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    for _ in range(options.steps):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"final loss: {loss.item():.6f}")


if __name__ == "__main__":
    main()
