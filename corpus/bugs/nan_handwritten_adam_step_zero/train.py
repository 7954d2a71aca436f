# pattern source: pytorch forum class "custom Adam gives nan at the first step"
import torch
import torch.nn as nn

torch.manual_seed(0)


class MyAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if not st:
                    st["t"], st["m"], st["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                st["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
                st["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                mhat = st["m"] / (1 - b1 ** st["t"])
                vhat = st["v"] / (1 - b2 ** st["t"])
                p.sub_(group["lr"] * mhat / (vhat.sqrt() + group["eps"]))
                st["t"] += 1


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU())
        self.classifier = nn.Linear(16 * 4 * 4, 5)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


protos = torch.randn(5, 1, 12, 12)
model = ConvNet()
optimizer = MyAdam(model.parameters(), lr=2e-3)
for step in range(40):
    y = torch.randint(0, 5, (32,))
    x = protos[y] + 0.7 * torch.randn(32, 1, 12, 12)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 0:
        print(f"step {step} loss {loss.item():.4f}")
