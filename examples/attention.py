"""A small training to debug: `tensonde debug examples/attention.py`."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1)
        weights = F.softmax(scores, dim=-1)
        return self.out(weights @ v)


class Classifier(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.attn = Attention(width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.embed(x)
        x = x + self.attn(x)
        y, _ = self.lstm(x)
        return self.head(y.mean(dim=1))


def main():
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    for step in range(6):
        x = torch.randn(2, 5, 4)
        y = torch.randint(0, 3, (2,))
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.6f}")
    print("weights", sum(p.double().sum() for p in model.parameters()).item())


if __name__ == "__main__":
    main()
