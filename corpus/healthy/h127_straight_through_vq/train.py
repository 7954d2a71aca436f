import torch
import torch.nn as nn

torch.manual_seed(0)


class VQ(nn.Module):
    def __init__(self, codes=16, d=4):
        super().__init__()
        self.codebook = nn.Parameter(torch.randn(codes, d))

    def forward(self, z):
        k = torch.cdist(z, self.codebook).argmin(1)
        q = self.codebook[k]
        loss = (q - z.detach()).pow(2).mean() + 0.25 * (z - q.detach()).pow(2).mean()
        return z + (q - z).detach(), loss, k


enc = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 4))
dec = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 10))
vq = VQ()
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters(), *vq.parameters()], lr=3e-3)
protos = torch.randn(8, 10) * 1.5
for step in range(600):
    x = protos[torch.randint(0, 8, (128,))] + 0.1 * torch.randn(128, 10)
    q, vq_loss, k = vq(enc(x))
    rec = (dec(q) - x).pow(2).mean()
    loss = rec + vq_loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 99:
        print(f"step {step} rec {rec.item():.4f} vq {vq_loss.item():.4f} codes used {k.unique().numel()}")
