import torch
import torch.nn as nn

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(12, 64)
        self.bn = nn.BatchNorm1d(64)
        self.drop = nn.Dropout(0.5)
        self.out = nn.Linear(64, 3)

    def forward(self, x):
        return self.out(self.drop(torch.relu(self.bn(self.inp(x)))))


x = torch.randn(1000, 12)
y = x[:, :3].argmax(1)
model = Classifier()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(5):
    for idx in torch.randperm(800).split(40):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    acc = (model(x[800:]).argmax(1) == y[800:]).float().mean().item()
    print(f"epoch {epoch} loss {loss.item():.4f} acc {acc:.3f}")
