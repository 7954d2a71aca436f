import torch
import torch.nn as nn

torch.manual_seed(0)


def pair_loss(scores, labels):
    positive = scores[labels == 1]
    negative = scores[labels == 0]
    pull = (1 - positive).clamp(min=0).mean()
    push = (negative + 1).clamp(min=0).mean()
    return pull + push


x = torch.randn(900, 10)
labels = (torch.rand(900) < 0.04).long()
x[:, 0] += 2 * labels
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(3):
    for idx in torch.randperm(900).split(15):
        loss = pair_loss(model(x[idx]).squeeze(1), labels[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
