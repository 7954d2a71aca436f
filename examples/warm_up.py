"""A learning rate of one's own, as WarmUpLR in MindSpore's guide to network debugging; `tensonde.train.WarmUpLR` is ready-made."""

import torch
from torch import nn

from tensonde.train import LearningRateMonitor, LearningRateScheduler, Model, follow


class WarmUpLR:
    def __init__(self, learning_rate, warmup_steps):
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps

    def __call__(self, global_step):
        warmup_percent = min(global_step, self.warmup_steps) / self.warmup_steps
        return self.learning_rate * warmup_percent


network = nn.Linear(2, 1)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
scheduler = follow(optimizer, WarmUpLR(0.1, 4))
rates = LearningRateMonitor()
data = [(torch.ones(4, 2), torch.ones(4, 1))] * 6
Model(network, nn.MSELoss(), optimizer).train(1, data, [rates, LearningRateScheduler(scheduler)])
print([round(rate, 3) for (rate,) in rates.rates])
