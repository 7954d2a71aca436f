"""Normalizing flows of nflows, zuko and normflows."""

# needs: nflows zuko
import torch
import zuko
from fingerprint import report
from nflows import distributions, flows, transforms

torch.manual_seed(0)


def moons(n):
    t = torch.rand(n) * 3.1416
    s = (torch.rand(n) > 0.5).float()
    return torch.stack([torch.cos(t) * (1 - 2 * s) + s, torch.sin(t) * (1 - 2 * s) + s * 0.5], 1) + 0.05 * torch.randn(
        n, 2
    )


f1 = zuko.flows.NSF(2, transforms=2, hidden_features=(32, 32))
f2 = flows.Flow(
    transforms.CompositeTransform(
        [
            transforms.ReversePermutation(2),
            transforms.MaskedAffineAutoregressiveTransform(2, 16),
            transforms.ReversePermutation(2),
            transforms.MaskedAffineAutoregressiveTransform(2, 16),
        ]
    ),
    distributions.StandardNormal([2]),
)
for name, f in (("zuko", f1), ("nflows", f2)):
    opt = torch.optim.Adam(f.parameters(), 3e-3)
    for i in range(120):
        x = moons(128)
        loss = -(f().log_prob(x) if name == "zuko" else f.log_prob(x)).mean()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(f.parameters(), 5.0)
        opt.step()
    print(name, f"{loss.item():.6f}")
report(f1, f2)
