# pattern source: delzac/cntkx#10, PAIR-code/tiny-transformers#71, huggingface/blog#2893
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
KEYS, VALS, PAIRS, D = 40, 6, 12, 128


class SelfAttention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d, d) for _ in range(3))
        for m in (self.q, self.k, self.v):
            nn.init.xavier_uniform_(m.weight)
        self.d = d

    def forward(self, query, context):
        scores = self.q(query) @ self.k(context).transpose(-2, -1)
        return torch.softmax(scores, dim=-1) @ self.v(context)


class Recall(nn.Module):
    def __init__(self):
        super().__init__()
        self.key_emb = nn.Embedding(KEYS, D)
        self.val_emb = nn.Embedding(VALS, D)
        self.attn = SelfAttention(D)
        self.out = nn.Linear(D, VALS)

    def forward(self, keys, vals, ask):
        context = self.key_emb(keys) + self.val_emb(vals)
        return self.out(self.attn(self.key_emb(ask).unsqueeze(1), context).squeeze(1))


def batch(n):
    keys = torch.stack([torch.randperm(KEYS)[:PAIRS] for _ in range(n)])
    vals = torch.randint(0, VALS, (n, PAIRS))
    pick = torch.randint(0, PAIRS, (n,))
    rows = torch.arange(n)
    return keys, vals, keys[rows, pick], vals[rows, pick]


model = Recall()
opt = torch.optim.Adam(model.parameters(), lr=5e-4)
for step in range(160):
    keys, vals, ask, answer = batch(64)
    logits = model(keys, vals, ask)
    loss = F.cross_entropy(logits, answer)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 39:
        print(f"step {step} loss {loss.item():.4f} acc {(logits.argmax(1) == answer).float().mean().item():.3f}")
