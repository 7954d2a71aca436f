import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Wrapped(torch.optim.Optimizer):
    def __init__(self, optimizer):
        self.optimizer = optimizer

    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)
    defaults = property(lambda self: self.optimizer.defaults)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        self.optimizer.step(closure)


class WrappedSchedule:
    def __init__(self, scheduler):
        self.scheduler = scheduler

    def step(self):
        self.scheduler.step()


x = torch.randn(320, 8)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
optimizer = Wrapped(torch.optim.AdamW(model.parameters(), lr=1e-2))
schedule = WrappedSchedule(torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 60))
for epoch in range(3):
    for k in torch.randperm(20).tolist():
        loss = F.cross_entropy(model(x[16 * k : 16 * k + 16]), y[16 * k : 16 * k + 16])
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    print(epoch, loss.item())
