"""A training that goes wrong: a classifier whose hand-written focal loss takes the log of a probability.

It trains well until the network is sure enough of a class that the softmax underflows to 0.
"""

import torch
from torch import nn


class FocalLoss(nn.Module):
    def __init__(self, gamma: float = 2.0) -> None:
        super().__init__()
        self.gamma = gamma

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        p = torch.softmax(logits, dim=1).gather(1, target[:, None]).squeeze(1)
        return -((1 - p) ** self.gamma * p.log()).mean()


class Classifier(nn.Module):
    def __init__(self, width: int = 64, classes: int = 4) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x))


torch.manual_seed(0)
centres = 8 * torch.randn(4, 16)
model = Classifier()
criterion = FocalLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for step in range(60):
    target = torch.randint(0, 4, (64,))
    x = centres[target] + torch.randn(64, 16)
    if step >= 30:
        target[0] = (target[0] + 1) % 4  # one mislabelled sample in each batch
    loss = criterion(model(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.4f}")
