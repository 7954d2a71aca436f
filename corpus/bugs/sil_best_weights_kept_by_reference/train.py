import copy
import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(260, 20)
y = (x[:, 0] + 0.8 * torch.randn(260) > 0).long()
model = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 2))
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
best, best_state = float("inf"), None
for epoch in range(15):
    for i in torch.randperm(160).split(20):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        val = nn.functional.cross_entropy(model(x[160:]), y[160:]).item()
    if val < best:
        best = val
        best_state = model.state_dict()
    print(f"epoch {epoch} val {val:.4f}")
model.load_state_dict(best_state)
with torch.no_grad():
    print(f"restored {nn.functional.cross_entropy(model(x[160:]), y[160:]).item():.4f} best {best:.4f}")
