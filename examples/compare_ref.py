"""A small classifier, and the reference for `compare_port.py`."""

import torch
from torch import nn


class Reference(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(12, 32)
        self.norm = nn.LayerNorm(32, eps=1e-6)
        self.decide = nn.Linear(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decide(torch.relu(self.norm(self.encode(x))))


def main() -> None:
    torch.manual_seed(0)
    model = Reference()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1)
    for step in range(20):
        x = 0.01 * torch.randn(16, 12, generator=generator)
        y = x[:, :3].argmax(dim=1)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
