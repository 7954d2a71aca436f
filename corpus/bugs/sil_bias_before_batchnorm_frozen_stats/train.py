import torch
import torch.nn as nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 48)
        self.b = nn.Linear(48, 3)

    def forward(self, x):
        h = torch.relu(self.a(x))
        h = nn.Dropout(0.4)(h)
        return self.b(h)


x = torch.randn(900, 12)
y = x[:, :3].argmax(1)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(5):
    net.train()
    for idx in torch.randperm(700).split(50):
        loss = nn.functional.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        acc = (net(x[700:]).argmax(1) == y[700:]).float().mean().item()
    print(f"epoch {epoch} loss {loss.item():.4f} acc {acc:.3f}")
