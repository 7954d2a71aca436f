import torch
import torch.nn as nn

torch.manual_seed(0)


class Seq(nn.Module):
    def __init__(self, vocab=30, dim=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.fc = nn.Linear(dim, 2)

    def forward(self, ids):
        mask = (ids != 0).float().unsqueeze(-1)
        summed = (self.emb(ids) * mask).sum(1)
        pooled = summed / mask.sum(1).clamp(min=1)
        return self.fc(pooled)


ids = torch.randint(1, 30, (600, 10))
lengths = torch.randint(1, 11, (600,))
lengths[377] = 0
ids[torch.arange(10)[None] >= lengths[:, None]] = 0
y = (ids[:, 0] > 15).long()
model = Seq()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(4):
    for idx in torch.randperm(600).split(30):
        loss = nn.functional.cross_entropy(model(ids[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
