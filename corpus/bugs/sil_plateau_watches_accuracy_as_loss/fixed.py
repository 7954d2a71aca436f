import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(1200, 16)
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).long()
train_x, train_y, val_x, val_y = x[:1000], y[:1000], x[1000:], y[1000:]
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode="max", factor=0.5, patience=3)
for epoch in range(14):
    model.train()
    for i in torch.randperm(1000).split(50):
        loss = nn.functional.cross_entropy(model(train_x[i]), train_y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(val_x).argmax(1) == val_y).float().mean()
    sched.step(accuracy)
    print(f"epoch {epoch} loss {loss.item():.4f} accuracy {accuracy:.3f} lr {opt.param_groups[0]['lr']:.1e}")
