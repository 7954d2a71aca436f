# pattern source: torchgeo/torchgeo#791, Pilhyeon/BaSNet-pytorch#19, Spijkervet/CLMR#3
import torch
import torch.nn as nn

torch.manual_seed(0)
TAGS = 8


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, TAGS))
        self.activation = nn.Softmax(dim=1)

    def forward(self, x):
        return self.activation(self.net(x))


proto = torch.randn(TAGS, 24)
tags = (torch.rand(1500, TAGS) < 0.45).float()
x = tags @ proto + 0.5 * torch.randn(1500, 24)
model = Tagger()
criterion = nn.BCELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(10):
    total = 0.0
    for idx in torch.randperm(1500).split(50):
        probs = model(x[idx])
        loss = criterion(probs, tags[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() / 30
    with torch.no_grad():
        pred = (model(x) > 0.5).float()
    tp = (pred * tags).sum()
    f1 = (2 * tp / (pred.sum() + tags.sum())).item()
    print(f"epoch {epoch} loss {total:.4f} f1 {f1:.3f}")
