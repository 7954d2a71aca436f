# pattern source: lucidrains/byol-pytorch#95, sktime/sktime#10928, ultralytics/yolov5#9623
import copy
import torch
import torch.nn as nn

torch.manual_seed(11)


class AdditiveAttention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w, self.u = nn.Linear(d, d), nn.Linear(d, 1, bias=False)
        self.last_weights = None

    def forward(self, h):
        weights = torch.softmax(self.u(torch.tanh(self.w(h))), dim=1)
        self.last_weights = weights
        return (weights * h).sum(1)


class SensorNet(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.lstm = nn.LSTM(3, d, batch_first=True)
        self.attn = AdditiveAttention(d)
        self.head = nn.Linear(d, 3)

    def forward(self, x):
        return self.head(self.attn(self.lstm(x)[0]))


def batch(n=48):
    y = torch.randint(0, 3, (n,))
    x = 0.6 * torch.randn(n, 12, 3)
    x[torch.arange(n), torch.randint(0, 12, (n,)), y] += 3.0
    return x, y


model = SensorNet()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
best, best_model = float("inf"), None
for step in range(100):
    x, y = batch()
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 19:
        print(f"step {step} loss {loss.item():.4f}")
        if loss.item() < best:
            best, best_model = loss.item(), copy.deepcopy(model)
print(f"best loss {best:.4f}")
