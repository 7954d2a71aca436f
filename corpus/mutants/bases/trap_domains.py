"""Healthy: features that do not tell two domains apart. The domain's head learns nothing, and shall not; source and target tables are of one length."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(4)


class Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -0.5 * grad


N = 1200
source_x = torch.randn(N, 12)
source_y = (source_x[:, 0] + source_x[:, 1] * source_x[:, 2] > 0).long()
target_x = torch.randn(N, 12) + 0.05
body = nn.Sequential(nn.Linear(12, 48), nn.ReLU())
label_head, domain_head = nn.Linear(48, 2), nn.Linear(48, 1)
parameters = [*body.parameters(), *label_head.parameters(), *domain_head.parameters()]
opt = torch.optim.Adam(parameters, lr=3e-3)
for step in range(260):
    ours, theirs = torch.randperm(N)[:48], torch.randperm(N)[:48]
    a, b = body(source_x[ours]), body(target_x[theirs])
    task = F.cross_entropy(label_head(a), source_y[ours])
    domain = torch.cat([torch.zeros(48, 1), torch.ones(48, 1)])
    confused = F.binary_cross_entropy_with_logits(domain_head(Turned.apply(torch.cat([a, b]))), domain)
    loss = task + confused
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"final loss: {task.item():.3f}")
