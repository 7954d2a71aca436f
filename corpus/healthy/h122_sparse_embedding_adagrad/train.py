import torch
import torch.nn as nn

torch.manual_seed(0)
USERS, ITEMS, D = 400, 300, 8


class MF(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(USERS, D, sparse=True)
        self.item = nn.Embedding(ITEMS, D, sparse=True)
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)
        self.mlp = nn.Sequential(nn.Linear(2 * D, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, u, i):
        a, b = self.user(u), self.item(i)
        return (a * b).sum(1) + self.mlp(torch.cat([a, b], 1)).squeeze(1)


pu, qi = torch.randn(USERS, 3), torch.randn(ITEMS, 3)
u = torch.randint(0, USERS, (12000,))
i = torch.randint(0, ITEMS, (12000,))
r = (pu[u] * qi[i]).sum(1) + 0.1 * torch.randn(12000)
model = MF()
opt_sparse = torch.optim.SparseAdam([model.user.weight, model.item.weight], lr=2e-2)
opt_dense = torch.optim.AdamW(model.mlp.parameters(), lr=3e-3)
for epoch in range(10):
    total = 0.0
    for idx in torch.randperm(12000).split(200):
        loss = nn.functional.mse_loss(model(u[idx], i[idx]), r[idx])
        opt_sparse.zero_grad()
        opt_dense.zero_grad()
        loss.backward()
        opt_sparse.step()
        opt_dense.step()
        total += loss.item() / 60
    print(f"epoch {epoch} loss {total:.4f}")
