import torch
import torch.nn as nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        return self.head(self.body(x))


def fit(model, x, y, groups, epochs):
    opt = torch.optim.AdamW(groups)
    for epoch in range(epochs):
        for idx in torch.randperm(len(x)).split(40):
            loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


x = torch.randn(800, 12)
coarse = (x[:, :4].sum(1) > 0).long()
fine = coarse * 2 + (x[:, 4] > 0).long()
first = Net(2)
fit(first, x, coarse, [{"params": first.parameters(), "lr": 3e-3}], 3)
second = Net(4)
missing = second.load_state_dict({k: v for k, v in first.state_dict().items() if k.startswith("body")}, strict=False)
print("new:", missing.missing_keys)
fit(
    second,
    x,
    fine,
    [
        {"params": second.body[0].parameters(), "lr": 1e-6},
        {"params": second.body[2].parameters(), "lr": 1e-5},
        {"params": second.head.parameters(), "lr": 3e-3},
    ],
    4,
)
