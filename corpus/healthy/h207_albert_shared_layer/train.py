import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Albert(nn.Module):
    """one transformer layer applied four times, weights shared across depth"""

    def __init__(self, vocab=8, d=32, seq=8, depth=4, classes=4):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.pos = nn.Parameter(torch.zeros(1, seq, d))
        self.layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.depth = depth
        self.head = nn.Linear(d, classes)

    def forward(self, ids):
        h = self.tok(ids) + self.pos
        for _ in range(self.depth):
            h = self.layer(h)
        return self.head(h.mean(1))


ids = torch.randint(0, 8, (1200, 8))
y = (ids == 3).sum(1).clamp(max=3)
loader = DataLoader(TensorDataset(ids[:1000], y[:1000]), batch_size=50, shuffle=True, drop_last=True)
model = Albert()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(8):
    total = 0.0
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() / len(loader)
    with torch.no_grad():
        acc = (model(ids[1000:]).argmax(1) == y[1000:]).float().mean().item()
    print(f"epoch {epoch} loss {total:.4f} val acc {acc:.3f}")
