import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(800, 10)
y = (x @ torch.randn(10, 3)).argmax(1)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3)).bfloat16()
master = [p.detach().float().clone().requires_grad_() for p in model.parameters()]
opt = torch.optim.Adam(master, lr=2e-3)
for epoch in range(5):
    for idx in torch.randperm(800).split(40):
        loss = nn.functional.cross_entropy(model(x[idx].bfloat16()).float(), y[idx])
        loss.backward()
        for p, m in zip(model.parameters(), master):
            m.grad = p.grad.float()
            p.grad = None
        opt.step()
        with torch.no_grad():
            for p, m in zip(model.parameters(), master):
                p.copy_(m)
    print(f"epoch {epoch} loss {loss.item():.4f}")
