"""The next frame of a moving sprite: the target lies elsewhere than the input."""

import torch, torch.nn as nn, torch.nn.functional as F

torch.manual_seed(4)
sprites = (torch.rand(64, 6, 6) > 0.4).float()


def clip(n, frames=4, size=32):
    out = torch.zeros(n, frames, size, size)
    for i in range(n):
        s = sprites[int(torch.randint(0, 64, ()))]
        vy, vx = torch.randint(-4, 5, (2,)).tolist()
        if abs(vy) + abs(vx) < 3:
            vx = 4
        y, x = torch.randint(13, 14, (2,)).tolist()
        for t in range(frames):
            yy, xx = max(0, min(size - 6, y + vy * t)), max(0, min(size - 6, x + vx * t))
            out[i, t, yy : yy + 6, xx : xx + 6] = s
    return out


data = clip(512)
net = nn.Sequential(
    nn.Conv2d(3, 32, 7, padding=3),
    nn.ReLU(),
    nn.Conv2d(32, 32, 7, padding=3),
    nn.ReLU(),
    nn.Conv2d(32, 1, 5, padding=2),
)
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(160):
    batch = data[torch.randint(0, 448, (16,))]
    loss = F.binary_cross_entropy_with_logits(net(batch[:, :3]), batch[:, 3:])
    opt.zero_grad()
    loss.backward()
    opt.step()
print("final loss:", float(loss))
