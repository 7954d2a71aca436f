# pattern source: pytorch/pytorch#6327 (total_length), pytorch forum class "pad_packed_sequence and mask sizes differ"
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
MAX_LEN, VOCAB = 20, 60


class Encoder(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d, padding_idx=0)
        self.gru = nn.GRU(d, d, batch_first=True)
        self.score = nn.Linear(d, 1)
        self.out = nn.Linear(d, 2)

    def forward(self, tok, lengths):
        packed = pack_padded_sequence(self.emb(tok), lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.gru(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        scores = self.score(torch.tanh(out)).squeeze(-1)
        scores = scores.masked_fill(tok == 0, -1e9)
        pooled = (scores.softmax(1).unsqueeze(-1) * out).sum(1)
        return self.out(pooled)


def reviews(n=320):
    lengths = torch.randint(4, MAX_LEN + 1, (n,))
    tok = torch.randint(1, VOCAB, (n, MAX_LEN))
    tok[torch.arange(MAX_LEN)[None] >= lengths[:, None]] = 0
    label = (((tok > 30) & (tok > 0)).sum(1) * 2 > lengths).long()
    return TensorDataset(tok, lengths, label)


loader = DataLoader(reviews(), batch_size=16, shuffle=True)
model = Encoder()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(3):
    for step, (tok, lengths, label) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(tok, lengths), label)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
