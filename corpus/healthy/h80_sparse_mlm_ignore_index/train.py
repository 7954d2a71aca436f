import torch
import torch.nn as nn

torch.manual_seed(0)
V, MASK, PAD = 32, 31, 0


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, 32, padding_idx=PAD)
        self.pos = nn.Parameter(torch.randn(1, 16, 32) * 0.02)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, V, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        h = self.enc(self.emb(ids) + self.pos, src_key_padding_mask=ids == PAD)
        return self.head(h)


model = Bert()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
for step in range(60):
    ids = (torch.randint(1, 30, (24, 1)) + torch.arange(16)) % 29 + 1
    ids[torch.arange(16)[None] >= torch.randint(8, 17, (24, 1))] = PAD
    picked = (torch.rand(24, 16) < 0.2) & (ids != PAD)
    target = ids.masked_fill(~picked, -100)
    loss = nn.functional.cross_entropy(model(ids.masked_fill(picked, MASK)).flatten(0, 1), target.flatten(), ignore_index=-100)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 15 == 14:
        print(f"step {step} loss {loss.item():.4f}")
