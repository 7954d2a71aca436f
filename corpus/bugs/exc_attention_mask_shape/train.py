import torch
import torch.nn as nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.emb = nn.Embedding(12, dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.out = nn.Linear(dim, 2)

    def forward(self, ids):
        pad = (ids == 0).t()
        h = self.emb(ids)
        h, _ = self.attn(h, h, h, key_padding_mask=pad)
        return self.out(h.mean(1))


ids = torch.randint(1, 12, (200, 7))
ids[:, 5:][torch.rand(200, 2) < 0.5] = 0
y = (ids[:, 0] > 6).long()
net = Block()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(20):
    idx = torch.randint(0, 200, (20,))
    loss = nn.functional.cross_entropy(net(ids[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
print("done", loss.item())
