import torch
import torch.nn as nn

torch.manual_seed(0)
PAD, VOCAB, T = 0, 16, 14


class Tagger(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d, padding_idx=PAD)
        self.pos = nn.Embedding(T, d)
        layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, 5)

    def forward(self, ids):
        h = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        return self.head(self.encoder(h, src_key_padding_mask=ids == PAD))


def batch(n):
    ids = torch.randint(1, VOCAB, (n, T))
    lengths = torch.randint(4, T + 1, (n,))
    ids[torch.arange(T)[None] >= lengths[:, None]] = PAD
    prev = torch.cat([torch.zeros(n, 1, dtype=torch.long), ids[:, :-1]], 1)
    tags = (ids + prev) % 5
    tags[ids == PAD] = -100
    return ids, tags


model = Tagger()
criterion = nn.CrossEntropyLoss(ignore_index=-100, label_smoothing=0.1)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(500):
    ids, tags = batch(64)
    loss = criterion(model(ids).transpose(1, 2), tags)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 100 == 99:
        model.eval()
        with torch.no_grad():
            ids, tags = batch(200)
            real = tags != -100
            acc = (model(ids).argmax(-1) == tags)[real].float().mean().item()
        model.train()
        print(f"step {step} loss {loss.item():.4f} acc {acc:.3f}")
