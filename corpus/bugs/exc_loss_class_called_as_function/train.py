# pattern source: pytorch/pytorch#15337, Lightning-AI/pytorch-lightning#501, imranparuk/speaker-recognition-3d-cnn#2
import torch
import torch.nn as nn

torch.manual_seed(6)


class Trainer:
    def __init__(self, model, lr=5e-3):
        self.model = model
        self.loss_fn = nn.SmoothL1Loss
        self.opt = torch.optim.RMSprop(model.parameters(), lr=lr)

    def train_step(self, x, y):
        self.model.train()
        pred = self.model(x)
        loss = self.loss_fn(pred, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


class TemporalNet(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(2, channels, 3, padding=2, dilation=2),
            nn.GELU(),
            nn.Conv1d(channels, channels, 3, padding=4, dilation=4),
            nn.GELU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(channels, 1),
        )

    def forward(self, x):
        return self.net(x)


trainer = Trainer(TemporalNet())
for step in range(60):
    x = torch.randn(32, 2, 24)
    y = (x[:, :1] * x[:, 1:]).mean(2)
    loss = trainer.train_step(x, y)
    if step % 10 == 0:
        print(f"step {step} loss {loss:.4f}")
