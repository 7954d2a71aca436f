import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)


def accuracy(logits, target):
    pred = np.argmax(logits.detach().numpy(), axis=1)
    return float((pred == target.numpy()).mean())


x = torch.randn(200, 6)
y = x[:, :3].argmax(1)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(3):
    for idx in torch.randperm(200).split(20):
        out = model(x[idx])
        loss = nn.functional.cross_entropy(out, y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        acc = accuracy(out, y[idx])
    print(f"epoch {epoch} acc {acc:.3f}")
