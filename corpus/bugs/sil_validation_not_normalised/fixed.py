# pattern source: nttcslab/byol-a#5, PolymathicAI/the_well#68, Reza-Safdari/SimSiam-91.9-top1-acc-on-CIFAR10#4
import torch
import torch.nn as nn

torch.manual_seed(0)
scale = torch.tensor([1.0, 50.0, 1000.0, 0.1, 5.0, 20.0])
offset = torch.tensor([3.0, 200.0, -4000.0, 0.0, 10.0, 70.0])
z = torch.randn(1200, 6)
y = (z[:, :3].sum(1) > z[:, 3:].sum(1)).long() + (z[:, 0] > 1).long()
x = z * scale + offset
xt, yt, xv, yv = x[:900], y[:900], x[900:], y[900:]
mean, std = xt.mean(0), xt.std(0)
xt = (xt - mean) / std
xv = (xv - mean) / std


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc3 = nn.Linear(64, 3)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    acc = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


model = Net()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(10):
    for idx in torch.randperm(900).split(45):
        loss = nn.functional.cross_entropy(model(xt[idx]), yt[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    if epoch % 2 == 1:
        print(f"epoch {epoch} loss {loss.item():.4f} train {evaluate(model, xt, yt):.3f} val {evaluate(model, xv, yv):.3f}")
