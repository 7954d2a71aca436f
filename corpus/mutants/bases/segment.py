"""Segmentation of blobs: a small U-Net with skips, BCE plus Dice, random flips and crops, IoU on held-out images."""
import torch
import torch.nn as nn
import torch.nn.functional as F

SIDE, CROP, BATCH, STEPS = 32, 24, 16, 160


def scenes(n, gen):
    yy, xx = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    images = torch.empty(n, 1, SIDE, SIDE)
    masks = torch.zeros(n, 1, SIDE, SIDE)
    for i in range(n):
        ramp = (torch.rand(1, generator=gen) - 0.5) * xx / SIDE
        picture = 100 + 40 * ramp + 14 * torch.randn(SIDE, SIDE, generator=gen)
        for _ in range(int(torch.randint(1, 4, (1,), generator=gen))):
            cy, cx = torch.randint(4, SIDE - 4, (2,), generator=gen)
            r = torch.randint(3, 6, (1,), generator=gen)
            inside = (yy - cy) ** 2 + (xx - cx) ** 2 <= r**2
            picture[inside] += 38
            masks[i, 0][inside] = 1.0
        for _ in range(2):
            row = int(torch.randint(0, SIDE, (1,), generator=gen))
            picture[row] += 38
        images[i, 0] = picture
    return images, masks


def augment(images, masks, gen):
    top, left = torch.randint(0, SIDE - CROP + 1, (2,), generator=gen).tolist()
    images = images[:, :, top : top + CROP, left : left + CROP]
    masks = masks[:, :, top : top + CROP, left : left + CROP]
    if torch.rand(1, generator=gen) < 0.5:
        images, masks = images.flip(3), masks.flip(3)
    return images, masks


class Double(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.a = nn.Conv2d(c_in, c_out, 3, padding=1)
        self.b = nn.Conv2d(c_out, c_out, 3, padding=1)
        self.norm = nn.GroupNorm(4, c_out)

    def forward(self, x):
        return F.relu(self.norm(self.b(F.relu(self.a(x)))))


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down1 = Double(1, width)
        self.down2 = Double(width, 2 * width)
        self.bottom = Double(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.dec2 = Double(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.dec1 = Double(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        s1 = self.down1(x)
        s2 = self.down2(F.max_pool2d(s1, 2))
        h = self.bottom(F.max_pool2d(s2, 2))
        h = self.dec2(torch.cat([self.up2(h), s2], dim=1))
        h = self.dec1(torch.cat([self.up1(h), s1], dim=1))
        return self.head(h)


def dice_loss(logits, masks):
    p = torch.sigmoid(logits)
    overlap = (p * masks).sum(dim=(1, 2, 3))
    total = p.sum(dim=(1, 2, 3)) + masks.sum(dim=(1, 2, 3))
    return (1 - (2 * overlap + 1) / (total + 1)).mean()


def criterion(logits, masks):
    return F.binary_cross_entropy_with_logits(logits, masks) + dice_loss(logits, masks)


@torch.no_grad()
def iou(model, images, masks):
    model.eval()
    pred = torch.sigmoid(model(images)) > 0.5
    truth = masks > 0.5
    model.train()
    return ((pred & truth).sum() / (pred | truth).sum()).item()


torch.manual_seed(2)
gen = torch.Generator().manual_seed(2)
train_x, train_y = scenes(256, gen)
test_x, test_y = scenes(64, gen)
mean, std = train_x.mean(), train_x.std()
train_x, test_x = (train_x - mean) / std, (test_x - mean) / std
model = UNet()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=STEPS)
for step in range(STEPS):
    idx = torch.randint(0, len(train_x), (BATCH,), generator=gen)
    x, y = augment(train_x[idx], train_y[idx], gen)
    logits = model(x)
    loss = criterion(logits, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 40 == 39:
        print(f"step {step} loss {loss.item():.4f} iou {iou(model, test_x, test_y):.4f}")
print(f"final iou: {iou(model, test_x, test_y):.4f}")
