import torch
import torch.nn as nn

torch.manual_seed(2)


def mlp(sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = mlp([10, 32, 32, 5])

    def forward(self, x):
        return self.layers(x)


x = torch.randn(1000, 10)
y = x[:, 5:].argmin(1)
net = Classifier()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for epoch in range(6):
    for i in torch.randperm(1000).split(50):
        loss = nn.functional.cross_entropy(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
