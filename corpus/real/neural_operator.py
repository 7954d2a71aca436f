"""A Fourier neural operator: complex weights, of which gradients are complex, too."""

# needs: neuraloperator
import torch
from fingerprint import report
from neuralop.models import FNO

torch.manual_seed(0)
net = FNO(n_modes=(6, 6), hidden_channels=12, in_channels=1, out_channels=1, n_layers=2)
optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
x = torch.randn(64, 1, 16, 16)
frequencies = torch.fft.rfft2(x)
frequencies[..., 4:] = 0
y = torch.fft.irfft2(frequencies, s=(16, 16))
for _ in range(6):
    for i in range(0, 64, 8):
        optimizer.zero_grad()
        loss = (net(x[i : i + 8]) - y[i : i + 8]).square().mean()
        loss.backward()
        optimizer.step()
    schedule.step()
    print(f"{loss.item():.6f}")
report(dict(net.named_parameters()))
