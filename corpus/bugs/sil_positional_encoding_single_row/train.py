# pattern source: DiffPoseTalk/DiffPoseTalk#20, Lightning-AI/pytorch-lightning#19138, tanjimin/C.Origami#42
import math

import torch
import torch.nn as nn

torch.manual_seed(0)


class PositionalEncoding(nn.Module):
    def __init__(self, d, max_len=64):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        div = torch.exp(torch.arange(0, d, 2) * (-math.log(100.0) / d))
        pe = torch.zeros(1, max_len, d)
        pe[0, :, 0::2] = torch.sin(position * div)
        pe[0, :, 1::2] = torch.cos(position * div)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[:, x.shape[1], :]


class Model(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.emb = nn.Embedding(10, d)
        self.pos = PositionalEncoding(d)
        layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.fc = nn.Linear(d, 2)

    def forward(self, ids):
        return self.fc(self.encoder(self.pos(self.emb(ids))).mean(1))


def batch(n):
    ids = torch.randint(2, 10, (n, 12))
    spots = torch.stack([torch.randperm(12)[:2] for _ in range(n)])
    ids[torch.arange(n), spots[:, 0]] = 0
    ids[torch.arange(n), spots[:, 1]] = 1
    return ids, (spots[:, 0] < spots[:, 1]).long()


model = Model()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(400):
    ids, y = batch(64)
    loss = nn.functional.cross_entropy(model(ids), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 80 == 79:
        ids, y = batch(400)
        acc = (model(ids).argmax(1) == y).float().mean().item()
        print(f"step {step} loss {loss.item():.4f} acc {acc:.3f}")
