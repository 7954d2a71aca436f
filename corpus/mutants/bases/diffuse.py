"""A denoising diffusion model of points on two spirals: epsilon prediction, EMA weights, ancestral sampling, distance to the data."""

import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def spirals(n, gen):
    """Points of two spirals, class 0 and 1."""
    label = torch.randint(2, (n,), generator=gen)
    u = torch.rand(n, generator=gen).sqrt()
    angle = 2.2 * math.pi * u + math.pi * label
    radius = 5.0 * u
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    return points + 0.1 * torch.randn(n, 2, generator=gen), label


class Schedule:
    """Linear betas and what follows from them."""

    def __init__(self, steps, low=1e-3, high=0.15):
        self.steps = steps
        self.betas = torch.linspace(low, high, steps)
        self.alphas = 1.0 - self.betas
        self.alpha_bars = torch.cumprod(self.alphas, dim=0)

    def noisy(self, x0, t, noise):
        a = self.alpha_bars[t].unsqueeze(-1)
        return a.sqrt() * x0 + (1 - a).sqrt() * noise


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("freqs", torch.exp(torch.linspace(0, -math.log(200.0), dim // 2)))
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU())

    def forward(self, t):
        angles = t.float().unsqueeze(-1) * self.freqs
        return self.mlp(torch.cat([angles.sin(), angles.cos()], dim=-1))


class ResidualBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.cond = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x, c):
        h = F.silu(self.up(self.norm(x)) + self.cond(c))
        return x + self.down(h)


class Denoiser(nn.Module):
    def __init__(self, dim=64, depth=3):
        super().__init__()
        self.enter = nn.Linear(2, dim)
        self.time = TimeEmbedding(dim)
        self.label = nn.Embedding(3, dim)
        self.blocks = nn.ModuleList(ResidualBlock(dim) for _ in range(depth))
        self.leave = nn.Linear(dim, 2)

    def forward(self, x, t, y):
        c = self.time(t) + self.label(y)
        h = self.enter(x)
        for block in self.blocks:
            h = block(h, c)
        return self.leave(h)


@torch.no_grad()
def update_average(average, model, decay):
    for a, p in zip(average.parameters(), model.parameters()):
        a.lerp_(p, 1 - decay)


def diffusion_loss(model, schedule, x0, y, drop_label, gen):
    t = torch.randint(schedule.steps, (len(x0),), generator=gen)
    noise = torch.randn(x0.shape, generator=gen)
    y = torch.where(torch.rand(len(y), generator=gen) < drop_label, torch.full_like(y, 2), y)
    predicted = model(schedule.noisy(x0, t, noise), t, y)
    return F.mse_loss(predicted, noise)


@torch.no_grad()
def sample(model, schedule, y, gen):
    model.eval()
    x = torch.randn(len(y), 2, generator=gen)
    for step in reversed(range(schedule.steps)):
        t = torch.full((len(y),), step)
        eps = model(x, t, y)
        beta, alpha, bar = schedule.betas[step], schedule.alphas[step], schedule.alpha_bars[step]
        x = (x - beta / (1 - bar).sqrt() * eps) / alpha.sqrt()
        if step > 0:
            x = x + beta.sqrt() * torch.randn(x.shape, generator=gen)
    return x


def distance(generated, y, real, real_y):
    """Mean distance of samples to the nearest data point of their class, and of data to samples."""
    total = 0.0
    for label in (0, 1):
        d = torch.cdist(generated[y == label], real[real_y == label])
        total += (d.min(0).values.mean() + d.min(1).values.mean()).item() / 4
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=700)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--diffusion-steps", type=int, default=50)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--ema", type=float, default=0.98)
    parser.add_argument("--drop-label", type=float, default=0.1)
    args = parser.parse_args()
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)

    points, labels = spirals(4000, gen)
    centre, scale = points.mean(0), points.std(0)
    data = (points - centre) / scale
    schedule = Schedule(args.diffusion_steps)
    model = Denoiser()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 50) * (1 - 0.9 * s / args.iterations))
    total = 0.0
    for iteration in range(1, args.iterations + 1):
        model.train()
        rows = torch.randint(len(data), (args.batch,), generator=gen)
        loss = diffusion_loss(model, schedule, data[rows], labels[rows], args.drop_label, gen)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warmup.step()
        update_average(average, model, args.ema)
        total += loss.item()
        if iteration % 175 == 0:
            print(f"iteration {iteration} loss {total / 175:.4f}")
            total = 0.0
    y = torch.arange(400) % 2
    generated = sample(average, schedule, y, gen) * scale + centre
    print(f"final distance: {distance(generated, y, points[:1500], labels[:1500]):.4f}")


if __name__ == "__main__":
    main()
