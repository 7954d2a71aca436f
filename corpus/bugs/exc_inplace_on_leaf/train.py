import torch
import torch.nn as nn

torch.manual_seed(0)


class Cosine(nn.Module):
    def __init__(self, d=8, classes=4):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, d))

    def normalise(self):
        self.weight.div_(self.weight.norm(dim=1, keepdim=True))

    def forward(self, x):
        self.normalise()
        return 8 * nn.functional.normalize(x, dim=1) @ self.weight.t()


x = torch.randn(200, 8)
y = x[:, :4].argmax(1)
model = Cosine()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    idx = torch.randint(0, 200, (32,))
    loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
print("done", loss.item())
