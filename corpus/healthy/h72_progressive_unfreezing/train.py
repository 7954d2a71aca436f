import torch
from torch import nn

torch.manual_seed(0)


class Transfer(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.trunk(x))


x = torch.randn(600, 12)
y = x[:, :3].argmax(1)
model = Transfer()
for p in model.trunk.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
for epoch in range(10):
    if epoch == 4:
        for p in model.trunk.parameters():
            p.requires_grad_(True)
        optimizer.add_param_group({"params": list(model.trunk.parameters()), "lr": 1e-3})
    for idx in torch.randperm(600).split(50):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
