import torch
import torch.nn as nn

torch.manual_seed(0)


class Codebook(nn.Module):
    def __init__(self, k=16, dim=4):
        super().__init__()
        self.register_buffer("codes", torch.randn(k, dim))
        self.register_buffer("count", torch.ones(k))
        self.register_buffer("total", self.codes.clone())

    def forward(self, z):
        index = torch.cdist(z.detach(), self.codes).argmin(1)
        q = self.codes[index]
        if self.training:
            hot = nn.functional.one_hot(index, len(self.codes)).float()
            self.count.mul_(0.95).add_(hot.sum(0), alpha=0.05)
            self.total.mul_(0.95).add_(hot.t() @ z.detach(), alpha=0.05)
            self.codes.copy_(self.total / self.count.clamp(min=1e-3)[:, None])
        return z + (q - z).detach(), (z - q.detach()).pow(2).mean()


class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
        self.book = Codebook()
        self.dec = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x):
        q, commit = self.book(self.enc(x))
        return self.dec(q), commit


centers = torch.randn(12, 10) * 2
model = VQ()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(100):
    x = centers[torch.randint(0, 12, (64,))] + 0.1 * torch.randn(64, 10)
    out, commit = model(x)
    loss = nn.functional.mse_loss(out, x) + 0.25 * commit
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 24:
        print(f"step {step} loss {loss.item():.4f}")
