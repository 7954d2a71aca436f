import torch
from torch import nn

torch.manual_seed(0)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Trainer:
    def __init__(self, model, lr=3e-3):
        self.model, self.lr = model, lr
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def configure(self):
        return torch.optim.Adam(self.model.parameters(), lr=self.lr)

    def step(self, x, y):
        optimizer = self.configure()
        loss = nn.functional.mse_loss(self.model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()


x = torch.randn(1000, 8)
y = torch.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
trainer = Trainer(Regressor())
for step in range(250):
    idx = torch.randint(0, 1000, (64,))
    loss = trainer.step(x[idx], y[idx])
    if step % 50 == 49:
        print(step, loss)
