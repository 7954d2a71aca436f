import torch
import torch.nn as nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

torch.manual_seed(0)
x = torch.randn(1000, 10)
y = (torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * torch.randn(1000) > 0).long()
xt, yt, xv, yv = x[:800], y[:800], x[800:], y[800:]
model = nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
swa = AveragedModel(model)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
swa_sched = SWALR(opt, swa_lr=0.05, anneal_epochs=2)
for epoch in range(20):
    model.train()
    for idx in torch.randperm(800).split(40):
        loss = nn.functional.cross_entropy(model(xt[idx]), yt[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    if epoch >= 10:
        swa.update_parameters(model)
        swa_sched.step()
    if epoch % 4 == 3:
        print(f"epoch {epoch} loss {loss.item():.4f} lr {opt.param_groups[0]['lr']:.3f}")
update_bn([(xt[i:i + 40],) for i in range(0, 800, 40)], swa)
swa.eval()
with torch.no_grad():
    print(f"swa val acc {(swa(xv).argmax(1) == yv).float().mean().item():.3f}")
