import torch
import torch.nn as nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.norm(self.body(x)))


centers = torch.randn(5, 10)
y = torch.randint(0, 5, (800,))
x = centers[y] + torch.randn(800, 10)
model = Net()
for name, p in model.named_parameters():
    if "norm" not in name:
        p.requires_grad = False
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(5):
    for idx in torch.randperm(800).split(40):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
