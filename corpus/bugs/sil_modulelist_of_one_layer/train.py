# pattern source: zalandoresearch/pytorch-vq-vae#2, acids-ircam/ddsp_pytorch#37, linkedin/Liger-Kernel#269
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
V, T, AHEAD = 15, 10, 3


class MultiTokenLM(nn.Module):
    """one trunk, one head for each of the next tokens"""

    def __init__(self, width=48):
        super().__init__()
        self.emb = nn.Embedding(V, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.heads = nn.ModuleList([nn.Linear(width, V)] * AHEAD)

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return [head(h) for head in self.heads]


def batch(n):
    start = torch.randint(0, V, (n, 1))
    step = torch.randint(1, 3, (n, 1))
    seq = (start + step * torch.arange(T + AHEAD)) % V
    return seq[:, :T], [seq[:, k : k + T] for k in range(1, AHEAD + 1)]


model = MultiTokenLM()
print("n_params", sum(p.numel() for p in model.parameters()))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for it in range(200):
    ids, targets = batch(32)
    outs = model(ids)
    loss = sum(F.cross_entropy(o.flatten(0, 1), t.flatten()) for o, t in zip(outs, targets)) / AHEAD
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if it % 40 == 39:
        accs = [(o.argmax(-1) == t)[:, 1:].float().mean().item() for o, t in zip(outs, targets)]
        print(f"iter {it} loss {loss.item():.4f} acc of heads " + " ".join(f"{a:.3f}" for a in accs))
