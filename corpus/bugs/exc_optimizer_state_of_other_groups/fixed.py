import io

import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(5, 16)
        self.fc2 = nn.Linear(16, 1)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def groups(model):
    return [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 1e-2},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]


def fit(model, optimizer, steps):
    for _ in range(steps):
        x = torch.randn(32, 5)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
print(fit(model, optimizer, 30))
saved = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)
saved.seek(0)
state = torch.load(saved)
model = Net()
model.load_state_dict(state["model"])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
optimizer.load_state_dict(state["optimizer"])
print(fit(model, optimizer, 30))
