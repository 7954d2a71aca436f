"""Restoring pictures: blurred and noisy pictures of waves and edges, a small U-Net that predicts what to add, PSNR on held-out pictures with EMA weights."""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIZE = 24


def picture():
    """A grey picture from 0 to 1: a wave, a step edge and a disc."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    angle, shift, freq = torch.rand(3).tolist()
    wave = torch.sin((6 + 8 * freq) * (x * math.cos(3 * angle) + y * math.sin(3 * angle)) + 6 * shift)
    cx, cy = (torch.rand(2) - 0.5).tolist()
    disc = ((x - cx) ** 2 + (y - cy) ** 2 < 0.15).float()
    edge = (x * math.sin(6 * angle) > y * math.cos(6 * angle) + 0.3 * (shift - 0.5)).float()
    return (0.5 + 0.15 * wave + 0.25 * edge - 0.3 * disc).clamp(0, 1)[None]


def degrade(clean, generator):
    kernel = torch.ones(1, 1, 3, 3) / 9
    blurred = F.conv2d(F.pad(clean[None], (1, 1, 1, 1), mode="replicate"), kernel)[0]
    return blurred + 0.08 * torch.randn(clean.shape, generator=generator)


class Pictures(Dataset):
    def __init__(self, clean, seed, augment):
        generator = torch.Generator().manual_seed(seed)
        self.clean = clean
        self.bad = [degrade(c, generator) for c in clean]
        self.augment = augment

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, i):
        bad, clean = self.bad[i], self.clean[i]
        if self.augment:
            if torch.rand(1) < 0.5:
                bad, clean = bad.flip(-1), clean.flip(-1)
            if torch.rand(1) < 0.5:
                bad, clean = bad.transpose(-1, -2), clean.transpose(-1, -2)
        return bad, clean


def double(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down1 = double(1, width)
        self.down2 = double(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.merge = double(2 * width, width)
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        merged = self.merge(torch.cat([self.up(second), first], dim=1))
        return x + self.last(merged)


@torch.no_grad()
def update_ema(ema, model, decay):
    for e, p in zip(ema.parameters(), model.parameters()):
        e.mul_(decay).add_(p, alpha=1 - decay)


@torch.no_grad()
def psnr(model, loader):
    model.eval()
    values = []
    for bad, clean in loader:
        restored = model(bad).clamp(0, 1)
        mse = ((restored - clean) ** 2).mean(dim=(1, 2, 3))
        values.append(-10 * mse.log10())
    return torch.cat(values).mean().item()


def main():
    torch.manual_seed(6)
    clean = [picture() for _ in range(320)]
    train_set = Pictures(clean[:256], seed=1, augment=True)
    test_set = Pictures(clean[256:], seed=2, augment=False)
    train_loader = DataLoader(train_set, batch_size=16, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=32)
    model = UNet()
    ema = copy.deepcopy(model)
    for p in ema.parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.Adam([
        {"params": list(model.down1.parameters()) + list(model.down2.parameters()), "lr": 2e-3},
        {"params": list(model.up.parameters()) + list(model.merge.parameters()) + list(model.last.parameters()), "lr": 3e-3},
    ])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.3)
    for epoch in range(12):
        model.train()
        for bad, good in train_loader:
            restored = model(bad)
            loss = F.l1_loss(restored, good)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            update_ema(ema, model, 0.95)
        scheduler.step()
        if epoch % 4 == 3:
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}, psnr {psnr(ema, test_loader):.2f}")
    print(f"final psnr: {psnr(ema, test_loader):.4f}")


if __name__ == "__main__":
    main()
