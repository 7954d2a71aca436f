import torch
import torch.nn as nn

torch.manual_seed(0)


class Finetune(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        with torch.no_grad():
            features = torch.relu(self.backbone(x))
        return self.head(features)


centers = torch.randn(4, 16)
y = torch.randint(0, 4, (800,))
x = centers[y] + torch.randn(800, 16)
model = Finetune()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
for epoch in range(5):
    for idx in torch.randperm(800).split(40):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
