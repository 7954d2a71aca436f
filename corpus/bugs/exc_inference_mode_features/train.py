import torch
from torch import nn

torch.manual_seed(0)


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(9, 32), nn.Tanh())
        self.head = nn.Linear(32, 3)

    def features(self, x):
        with torch.inference_mode():
            return self.backbone(x)

    def forward(self, x):
        return self.head(self.features(x))


x = torch.randn(300, 9)
y = x[:, :3].argmax(1)
model = Probe()
optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
for step in range(60):
    idx = torch.randint(0, 300, (32,))
    loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
