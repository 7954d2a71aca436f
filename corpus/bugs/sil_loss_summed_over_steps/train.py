import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(600, 8)
y = torch.sin(x[:, :1] * 2)
net = nn.Linear(8, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(3):
    running = 0.0
    for i in torch.randperm(600).split(20):
        loss = (net(x[i]) - y[i]).abs().mean()
        running = running + loss
        opt.zero_grad()
        running.backward(retain_graph=True)
        opt.step()
    print(f"epoch {epoch} loss {float(running) / 30:.4f}")
