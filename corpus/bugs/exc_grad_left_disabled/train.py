import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(500, 6)
y = (x.sum(1) > 0).long()
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)


def validate():
    model.eval()
    torch.set_grad_enabled(False)
    accuracy = (model(x[400:]).argmax(1) == y[400:]).float().mean()
    model.train()
    return accuracy.item()


for epoch in range(4):
    for i in torch.randperm(400).split(40):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} accuracy {validate():.3f}")
