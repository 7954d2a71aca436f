import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(0)
V, BOS, PAD = 20, 1, 0


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, 24, padding_idx=PAD)
        self.enc = nn.GRU(24, 48, batch_first=True)
        self.dec = nn.GRU(24, 48, batch_first=True)
        self.out = nn.Linear(48, V)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(self.emb(ids), lengths, batch_first=True, enforce_sorted=False)
        _, h = self.enc(packed)
        shifted = torch.cat([torch.full((len(ids), 1), BOS), ids[:, :-1]], 1)
        return self.out(self.dec(self.emb(shifted), h)[0])


model = Seq2Seq()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(80):
    lengths = torch.randint(2, 9, (32,))
    ids = torch.randint(2, V, (32, 8)).masked_fill(torch.arange(8)[None] >= lengths[:, None], PAD)
    logits = model(ids, lengths)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten(), ignore_index=PAD)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    if step % 20 == 19:
        print(f"step {step} loss {loss.item():.4f}")
