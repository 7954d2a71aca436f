import torch
import torch.nn as nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(1, 64)
        self.bn = nn.BatchNorm1d(64)
        self.drop1 = nn.Dropout(0.05)
        self.fc2 = nn.Linear(64, 64)
        self.drop2 = nn.Dropout(0.05)
        self.out = nn.Linear(64, 1)

    def forward(self, x):
        h = self.drop1(torch.relu(self.bn(self.fc1(x))))
        return self.out(self.drop2(torch.relu(self.fc2(h)))).squeeze(-1)


def mc_predict(model, x, samples=30):
    model.eval()
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.train()
    with torch.no_grad():
        draws = torch.stack([model(x) for _ in range(samples)])
    return draws.mean(0), draws.std(0)


x = torch.rand(600, 1) * 4 - 2
y = torch.sin(2 * x).squeeze(1) + 0.1 * torch.randn(600)
xv = torch.linspace(-2, 2, 100)[:, None]
model = Net()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(60):
    model.train()
    for idx in torch.randperm(600).split(50):
        loss = nn.functional.mse_loss(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    if epoch % 10 == 9:
        mean, std = mc_predict(model, xv)
        err = (mean - torch.sin(2 * xv).squeeze(1)).pow(2).mean().item()
        print(f"epoch {epoch} loss {loss.item():.4f} mc mse {err:.4f} mean std {std.mean().item():.3f}")
