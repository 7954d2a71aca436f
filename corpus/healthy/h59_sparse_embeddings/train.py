import torch
import torch.nn as nn

torch.manual_seed(0)
users, items = 500, 300


class Factorisation(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.user = nn.Embedding(users, dim, sparse=True)
        self.item = nn.Embedding(items, dim, sparse=True)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(1) + self.bias


pu, pi = torch.randn(users, 3), torch.randn(items, 3)
u = torch.randint(0, users, (4000,))
i = torch.randint(0, items, (4000,))
r = (pu[u] * pi[i]).sum(1)
model = Factorisation()
sparse = torch.optim.SparseAdam([*model.user.parameters(), *model.item.parameters()], lr=1e-2)
dense = torch.optim.Adam([model.bias], lr=1e-2)
for epoch in range(6):
    for idx in torch.randperm(4000).split(100):
        loss = nn.functional.mse_loss(model(u[idx], i[idx]), r[idx])
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
