# pattern source: XuJiacong/PIDNet#30, WAMAWAMA/WAMA_Modules#1, torchgeo/torchgeo#4036
import io
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
centers = torch.randn(20, 24)


def make_net(n_out):
    return nn.Sequential(nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, n_out))


def sample(n, classes):
    y = torch.randint(0, classes, (n,))
    return centers[y] + 0.7 * torch.randn(n, 24), y


def pretrain():
    net = nn.DataParallel(make_net(20))
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for step in range(500):
        xb, yb = sample(128, 20)
        loss = F.cross_entropy(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"pretraining loss {loss.item():.4f}")
    buf = io.BytesIO()
    torch.save(net.state_dict(), buf)
    buf.seek(0)
    return buf


ckpt = torch.load(pretrain())
model = make_net(20)
own = model.state_dict()
own.update({k[7:]: v for k, v in ckpt.items() if k[7:] in own})
model.load_state_dict(own)
model[4] = nn.Linear(8, 8)
for p in model[:4].parameters():
    p.requires_grad = False
xt, yt = sample(200, 8)
xv, yv = sample(1000, 8)
opt = torch.optim.Adam(model[4].parameters(), lr=1e-2)
for epoch in range(40):
    for idx in torch.randperm(200).split(50):
        loss = F.cross_entropy(model(xt[idx]), yt[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    if epoch % 8 == 7:
        acc = (model(xv).argmax(1) == yv).float().mean().item()
        print(f"epoch {epoch} loss {loss.item():.4f} val acc {acc:.3f}")
