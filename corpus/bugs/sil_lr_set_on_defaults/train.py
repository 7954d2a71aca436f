# pattern source: experience (no public thread found)
import torch
import torch.nn as nn

torch.manual_seed(0)
LR, DECAY_EPOCHS = 0.3, (4, 7)
x = torch.randn(1024, 12)
w = torch.randn(12, 1)
y = torch.tanh(x @ w) + 0.5 * x[:, :1] * x[:, 1:2] + 0.5 * torch.randn(1024, 1)


def adjust_learning_rate(optimizer, epoch):
    if epoch in DECAY_EPOCHS:
        optimizer.defaults["lr"] *= 0.1


model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=LR)
loss_fn = nn.MSELoss()
for epoch in range(10):
    adjust_learning_rate(optimizer, epoch)
    for idx in torch.randperm(1024).split(8):
        loss = loss_fn(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        full = loss_fn(model(x), y).item()
    print(f"epoch {epoch} loss {full:.4f}")
