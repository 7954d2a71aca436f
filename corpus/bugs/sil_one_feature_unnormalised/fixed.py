import torch
import torch.nn as nn

torch.manual_seed(0)
n = 1000
age = torch.randint(18, 80, (n, 1)).float()
income = torch.rand(n, 1) * 90000 + 10000
scores = torch.randn(n, 4)
table = torch.cat([age, income, scores], 1)
target = (scores[:, 0] + scores[:, 1] > 0).float()


class Tabular(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 32), nn.Sigmoid(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


model = Tabular()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
table = (table - table.mean(0)) / table.std(0)
for epoch in range(6):
    for idx in torch.randperm(n).split(50):
        loss = nn.functional.binary_cross_entropy_with_logits(model(table[idx]), target[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
