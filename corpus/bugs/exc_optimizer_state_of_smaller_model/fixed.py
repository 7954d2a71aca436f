import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)



def build(hidden):
    model = nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 1))
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def train(model, optimizer, steps):
    for _ in range(steps):
        x = torch.randn(16, 8)
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


model, optimizer = build(16)
train(model, optimizer, 10)
saved = optimizer.state_dict()
model, optimizer = build(32)
print(train(model, optimizer, 10).item())
