import torch
import torch.nn as nn

torch.manual_seed(0)


def build():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))


def train(model, x, y, steps):
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


x = torch.randn(100, 6)
y = (x[:, 0] > 0).long()
wrapped = nn.DataParallel(build())
print("first", train(wrapped, x, y, 10))
torch.save(wrapped.state_dict(), "model.pt")
model = build()
model.load_state_dict(torch.load("model.pt"))
print("second", train(model, x, y, 10))
