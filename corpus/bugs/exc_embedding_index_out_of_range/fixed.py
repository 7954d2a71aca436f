import torch
import torch.nn as nn

torch.manual_seed(0)
PAD = 30


class Bag(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.emb = nn.Embedding(vocab, 16)
        self.fc = nn.Linear(16, 2)

    def forward(self, ids):
        return self.fc(self.emb(ids).mean(1))


ids = torch.randint(0, 30, (300, 8))
ids[200:, 6:] = PAD
y = (ids[:, 0] > 15).long()
model = Bag(PAD + 1)
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(2):
    for idx in torch.randperm(300).split(30):
        loss = nn.functional.cross_entropy(model(ids[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
