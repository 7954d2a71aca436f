# pattern source: keras-team/keras#7057, dangitstam/topic-rnn#9, shiningrain/AUTOTRAINER (dying ReLU class)
import argparse
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.005)
parser.add_argument("--epochs", type=int, default=8)
args = parser.parse_args()
torch.manual_seed(0)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 32)
        self.act1 = nn.ReLU()
        self.fc2 = nn.Linear(32, 32)
        self.act2 = nn.ReLU()
        self.fc3 = nn.Linear(32, 1)

    def forward(self, x):
        h = self.act2(self.fc2(self.act1(self.fc1(x))))
        self.alive = (h > 0).any(0).float().mean().item()
        return self.fc3(h)


x = torch.randn(800, 6)
y = 3.0 + x[:, :1] - 2.0 * x[:, 1:2] * x[:, 2:3] + 0.1 * torch.randn(800, 1)
model = MLP()
opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
for epoch in range(args.epochs):
    for idx in torch.randperm(800).split(40):
        loss = nn.functional.mse_loss(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        pred = model(x)
        r2 = 1 - (pred - y).pow(2).mean() / y.var()
    print(f"epoch {epoch} loss {loss.item():.4f} r2 {r2.item():.3f} pred std {pred.std().item():.4f} alive {model.alive:.2f}")
