# pattern source: pytorch/pytorch#92680, aleju/imgaug#630, xuebinqin/U-2-Net#142
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(5)


class Augment:
    def __init__(self, p, seed):
        self.p, self.rng = p, np.random.RandomState(seed)

    def __call__(self, img, mask):
        if self.rng.rand() < self.p:
            img, mask = np.fliplr(img), np.fliplr(mask)
        return img, mask


class Blobs(Dataset):
    def __init__(self, n=96, transform=None):
        rng = np.random.RandomState(5)
        yy, xx = np.mgrid[:16, :16]
        c, r = rng.uniform(3, 13, (n, 2)), rng.uniform(2, 5, n)
        d = np.hypot(yy[None] - c[:, 0, None, None], xx[None] - c[:, 1, None, None])
        self.mask = (d < r[:, None, None]).astype(np.float32)
        self.img = (self.mask + 0.4 * rng.randn(n, 16, 16)).astype(np.float32)
        self.transform = transform

    def __len__(self):
        return len(self.img)

    def __getitem__(self, i):
        img, mask = self.img[i], self.mask[i]
        if self.transform is not None:
            img, mask = self.transform(img, mask)
        return torch.from_numpy(img)[None], torch.from_numpy(mask)[None]


loader = DataLoader(Blobs(transform=Augment(0.02, 19)), batch_size=16, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 1, 1))
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
for epoch in range(3):
    for step, (img, mask) in enumerate(loader):
        loss = nn.functional.binary_cross_entropy_with_logits(net(img), mask)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
