"""e3nn: a tensor product of irreducible representations, whose classes are tuples that refuse `len`."""

# needs: e3nn
import torch
from e3nn import o3
from fingerprint import report
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.irreps = o3.Irreps("0e+1o")
        self.product = o3.FullyConnectedTensorProduct(self.irreps, self.irreps, "4x0e+2x1o")
        self.out = o3.Linear("4x0e+2x1o", "0e")

    def forward(self, x):
        harmonics = o3.spherical_harmonics(self.irreps, x, normalize=False)
        return self.out(self.product(harmonics, harmonics))


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-2)
for _ in range(60):
    x = torch.randn(32, 3)
    loss = (net(x) - x.square().sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.6f}")
report(net)
