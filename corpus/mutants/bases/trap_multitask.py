"""Two tasks on one trunk, one of them hard and nearly all noise; a penalty on activations."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.price, self.click = nn.Linear(64, 1), nn.Linear(64, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.price(h).squeeze(1), self.click(h).squeeze(1), h


w, u = torch.randn(12), torch.randn(12)
model = Net()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(400):
    x = torch.randn(64, 12)
    price = torch.sin(x @ w / 2) + 0.1 * torch.randn(64)
    click = (torch.rand(64) < torch.sigmoid(-2 + 0.4 * (x @ u))).float()
    p, c, h = model(x)
    loss = F.mse_loss(p, price) + 0.3 * F.binary_cross_entropy_with_logits(c, click) + 1e-4 * h.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"final loss: {loss.item():.3f}")
