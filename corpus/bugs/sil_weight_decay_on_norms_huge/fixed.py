import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(800, 10)
y = (x[:, 0] + x[:, 1] * 0.5 > 0).long()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(10, 32)
        self.ln = nn.LayerNorm(32)
        self.l2 = nn.Linear(32, 2)

    def forward(self, x):
        return self.l2(torch.relu(self.ln(self.l1(x))))


model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=5e-4)
for epoch in range(6):
    for idx in torch.randperm(800).split(40):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
