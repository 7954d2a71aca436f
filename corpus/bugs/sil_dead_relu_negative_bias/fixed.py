import torch
import torch.nn as nn

torch.manual_seed(0)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 40)
        self.act = nn.ReLU()
        self.fc2 = nn.Linear(40, 3)
        self.reset()

    def reset(self):
        nn.init.xavier_uniform_(self.fc1.weight)
        nn.init.zeros_(self.fc1.bias)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


x = torch.randn(600, 10)
y = x[:, :3].argmax(1)
model = MLP()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(6):
    for idx in torch.randperm(600).split(30):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
