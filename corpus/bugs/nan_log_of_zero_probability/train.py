import torch
import torch.nn as nn

torch.manual_seed(0)


def entropy_loss(logits, target):
    p = torch.softmax(logits, dim=1)
    onehot = nn.functional.one_hot(target, logits.shape[1]).float()
    return -(onehot * torch.log(p)).sum(1).mean()


x = torch.randn(500, 10) * 200
y = (x @ torch.randn(10, 5)).argmax(1)
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 5))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(120):
    idx = torch.randint(0, 500, (50,))
    loss = entropy_loss(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 19:
        print(f"step {step} loss {loss.item():.4f}")
