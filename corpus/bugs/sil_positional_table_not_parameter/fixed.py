import torch
import torch.nn as nn

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self, vocab=16, dim=24, length=10):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.randn(length, dim))
        self.mix = nn.Sequential(nn.Linear(dim, dim), nn.ReLU())
        self.out = nn.Linear(dim, 2)

    def forward(self, ids):
        h = self.mix(self.emb(ids) + self.pos)
        return self.out(h.mean(1))


ids = torch.randint(0, 16, (600, 10))
y = (ids[:, 0] > ids[:, 9]).long()
model = Encoder()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(6):
    for idx in torch.randperm(600).split(30):
        loss = nn.functional.cross_entropy(model(ids[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
