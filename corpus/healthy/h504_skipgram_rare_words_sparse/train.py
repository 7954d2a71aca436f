import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
VOCAB, DIM, NEG = 1000, 24, 5
TOPICS = 10


class SkipGram(nn.Module):
    """word2vec with negative sampling; the context table starts at zero as in the original C code"""

    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(VOCAB, DIM, padding_idx=0, sparse=True)
        self.context = nn.Embedding(VOCAB, DIM, padding_idx=0, sparse=True)
        nn.init.uniform_(self.word.weight, -0.5 / DIM, 0.5 / DIM)
        nn.init.zeros_(self.context.weight)

    def forward(self, center, pos, neg):
        w = self.word(center)
        good = (w * self.context(pos)).sum(-1)
        bad = torch.einsum("bd,bnd->bn", w, self.context(neg))
        return -(F.logsigmoid(good) + F.logsigmoid(-bad).sum(-1)).mean()


def zipf(n):
    """most of the vocabulary is hardly ever drawn"""
    return (torch.rand(n) ** 6 * (VOCAB - 1)).long() + 1


model = SkipGram()
opt = torch.optim.SparseAdam(list(model.parameters()), lr=1e-2)
for step in range(300):
    center = zipf(256)
    pos = (zipf(256) // TOPICS * TOPICS + center % TOPICS).clamp(1, VOCAB - 1)
    neg = zipf(256 * NEG).view(256, NEG)
    loss = model(center, pos, neg)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 49:
        with torch.no_grad():
            e = F.normalize(model.word.weight[1:41], dim=1)
            topic = torch.arange(1, 41) % TOPICS
            same = (topic[:, None] == topic[None]) & ~torch.eye(40, dtype=torch.bool)
            s = e @ e.t()
        print(f"step {step} loss {loss.item():.4f} same {s[same].mean().item():.3f} other {s[~same].mean().item():.3f}")
