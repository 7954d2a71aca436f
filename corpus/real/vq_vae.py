"""vector-quantize-pytorch: straight-through, EMA codebook, dead-code replacement."""

# needs: vector-quantize-pytorch
import torch
from fingerprint import report
from torch import nn
from vector_quantize_pytorch import FSQ, ResidualVQ, VectorQuantize

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, q, d):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv1d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv1d(32, d, 4, 2, 1))
        self.q = q
        self.dec = nn.Sequential(nn.ConvTranspose1d(d, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose1d(32, 1, 4, 2, 1))

    def forward(self, x):
        z = self.enc(x).transpose(1, 2)
        out = self.q(z)
        q = out[0]
        aux = out[2].sum() if len(out) > 2 else 0.0
        return self.dec(q.transpose(1, 2)), aux


for q, d in [
    (VectorQuantize(16, 64, kmeans_init=True, threshold_ema_dead_code=2), 16),
    (ResidualVQ(dim=16, codebook_size=32, num_quantizers=2), 16),
    (FSQ([8, 5, 5]), 3),
]:
    net = Net(q, d)
    opt = torch.optim.AdamW(net.parameters(), 2e-3)
    for i in range(80):
        f = torch.rand(32, 1, 1) * 6 + 1
        x = torch.sin(torch.linspace(0, 6.28, 64)[None, None] * f)
        r, aux = net(x)
        loss = (r - x).abs().mean() + aux
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(type(q).__name__, f"{loss.item():.6f}")
report(net, opt)
