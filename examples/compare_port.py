"""`compare_ref.py` written again with other names, and with one thing that is not the same."""

import torch
from torch import nn
from torch.nn import functional as F


class Port(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(12, 32)
        self.ln = nn.LayerNorm(32)
        self.fc2 = nn.Linear(32, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.ln(self.fc1(inputs))
        return self.fc2(F.relu(hidden))


torch.manual_seed(0)
net = Port()
adam = torch.optim.AdamW(net.parameters(), lr=1e-2)
source = torch.Generator().manual_seed(1)
for step in range(20):
    batch = torch.randn(16, 12, generator=source) * 0.01
    labels = batch[:, :3].argmax(dim=1)
    adam.zero_grad()
    loss = F.cross_entropy(net(batch), labels)
    loss.backward()
    adam.step()
    print(f"step {step} loss {loss.item():.5f}")
