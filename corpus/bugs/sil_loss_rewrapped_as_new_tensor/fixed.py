# pattern source: speechbrain/speechbrain#735, Kostis-S-Z/exploring_meta#16, pytorch forum "loss = Variable(loss, requires_grad=True)"
import torch
import torch.nn as nn

torch.manual_seed(0)


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.age = nn.Linear(48, 1)
        self.kind = nn.Linear(48, 3)

    def forward(self, x):
        h = self.trunk(x)
        return self.age(h).squeeze(-1), self.kind(h)


def multi_task_loss(outputs, age, kind, weights=(1.0, 0.5)):
    pred_age, logits = outputs
    parts = [
        weights[0] * nn.functional.l1_loss(pred_age, age),
        weights[1] * nn.functional.cross_entropy(logits, kind),
    ]
    return sum(parts)


model = MultiTask()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(300):
    x = torch.randn(64, 8)
    age = x[:, 0] * 2 + x[:, 1].abs()
    kind = x[:, 2:5].argmax(1)
    loss = multi_task_loss(model(x), age, kind)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 59:
        print(f"step {step} loss {loss.item():.4f}")
