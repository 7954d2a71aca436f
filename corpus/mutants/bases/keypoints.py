"""Two joints of an arm in grey images, found as heat maps by a small encoder and decoder. Images are uint8 until they are used."""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE, JOINTS, SIGMA = 32, 2, 1.5


def draw(rng):
    """An image of an arm, and its elbow and hand as (x, y)."""
    elbow = rng.uniform(10, SIZE - 10, 2)
    angle = rng.uniform(0, 2 * np.pi)
    hand = np.clip(elbow + 8 * np.array([np.cos(angle), np.sin(angle)]), 2, SIZE - 3)
    ys, xs = np.mgrid[0:SIZE, 0:SIZE]
    image = np.full((SIZE, SIZE), 60.0)
    for t in np.linspace(0, 1, 12):
        x, y = elbow * (1 - t) + hand * t
        image += 40 * np.exp(-((xs - x) ** 2 + (ys - y) ** 2) / 2)
    for (x, y), bright, wide in ((elbow, 120, 6.0), (hand, 110, 1.5)):
        image += bright * np.exp(-((xs - x) ** 2 + (ys - y) ** 2) / (2 * wide))
    image += rng.normal(0, 6, image.shape)
    return np.clip(image, 0, 255).astype(np.uint8), np.stack([elbow, hand])


class Arms(Dataset):
    def __init__(self, count, seed, train):
        rng = np.random.default_rng(seed)
        made = [draw(rng) for _ in range(count)]
        self.images = np.stack([image for image, _ in made])
        self.joints = np.stack([joints for _, joints in made])
        self.train = train

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index].astype(np.float32) / 255.0
        joints = self.joints[index].copy()
        if self.train and np.random.rand() < 0.5:
            image = image[:, ::-1].copy()
            joints[:, 0] = SIZE - 1 - joints[:, 0]
        return torch.from_numpy(image)[None], heat(joints), torch.tensor(joints, dtype=torch.float32)


def heat(joints):
    ys, xs = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    maps = [torch.exp(-((xs - x) ** 2 + (ys - y) ** 2) / (2 * SIGMA**2)) for x, y in joints]
    return torch.stack(maps).float()


class Finder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(1, width, 5, padding=2), nn.ReLU())
        self.down2 = nn.Sequential(nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.out = nn.Conv2d(2 * width, JOINTS, 3, padding=1)

    def forward(self, image):
        fine = self.down1(image - 0.3)
        coarse = self.middle(self.down2(fine))
        return self.out(torch.cat([fine, F.relu(self.up(coarse))], dim=1))


def located(maps):
    best = maps.flatten(2).argmax(dim=-1)
    return torch.stack([best % SIZE, best // SIZE], dim=-1).float()


def error(model, loader):
    model.eval()
    with torch.no_grad():
        far = [(located(model(image)) - joints).norm(dim=-1) for image, _, joints in loader]
    model.train()
    return torch.cat(far).mean().item()


def train():
    torch.manual_seed(8)
    np.random.seed(8)
    loader = DataLoader(Arms(512, seed=1, train=True), batch_size=16, shuffle=True)
    held_out = DataLoader(Arms(96, seed=2, train=False), batch_size=32)
    model = Finder()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for epoch in range(6):
        for image, target, _ in loader:
            maps = model(image)
            loss = 100 * ((maps - target) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f} error {error(model, held_out):.2f} pixels")
    print(f"final pixels: {error(model, held_out):.3f}")


if __name__ == "__main__":
    train()
