import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(600, 12)
y = (x[:, :3].sum(1) > 0).float()
model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()
for epoch in range(5):
    total = 0
    for idx in torch.randperm(600).split(50):
        opt.zero_grad()
        loss = bce(model(x[idx]).squeeze(1), y[idx])
        loss.backward()
        opt.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / 12:.4f}")
