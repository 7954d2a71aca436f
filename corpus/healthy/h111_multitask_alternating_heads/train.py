import torch
import torch.nn as nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.heads = nn.ModuleDict({"kind": nn.Linear(64, 4), "size": nn.Linear(64, 1)})

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))


model = Net()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
history = {"kind": 0.0, "size": 0.0}
for step in range(600):
    task = "kind" if step % 3 else "size"
    x = torch.randn(64, 10)
    out = model(x, task)
    if task == "kind":
        loss = nn.functional.cross_entropy(out, x[:, :4].argmax(1))
    else:
        loss = nn.functional.smooth_l1_loss(out.squeeze(1), 5 * torch.sin(x[:, 5]) + x[:, 6] * x[:, 7])
    opt.zero_grad()
    loss.backward()
    opt.step()
    history[task] = loss.item()
    if step % 100 == 99:
        print(f"step {step} kind {history['kind']:.4f} size {history['size']:.4f}")
