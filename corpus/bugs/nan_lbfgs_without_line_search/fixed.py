# pattern source: pytorch/pytorch#5953, mlverse/torch#516
import torch
import torch.nn as nn

torch.manual_seed(1)

model = nn.Sequential(
    nn.Linear(5, 32),
    nn.Softplus(),
    nn.Linear(32, 32),
    nn.Softplus(),
    nn.Linear(32, 1),
)
X = torch.randn(400, 5)
Y = X[:, :1] * X[:, 1:2] + torch.sin(X[:, 2:3])
optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=10, line_search_fn="strong_wolfe")


def fit(x, y):
    def closure():
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        return loss

    return optimizer.step(closure)


for step in range(15):
    idx = torch.randperm(400)[:64]
    loss = fit(X[idx], Y[idx])
    print(f"step {step} loss {loss.item():.4f}")
with torch.no_grad():
    print(f"final mse {((model(X) - Y) ** 2).mean().item():.4f}")
