# pattern source: ibalazevic/TuckER#17, NVIDIA-NeMo/Speech#5726
import torch
import torch.nn as nn

torch.manual_seed(0)
vocab = {w: i for i, w in enumerate(["not", "good", "bad", "film", "plot", "fine", "dull", "actor", "<pad>"])}
PAD = vocab["<pad>"]
score = torch.tensor([-2.0, 1.0, -1.0, 0.3, -0.2, 0.8, -0.7, 0.1, 0.0])
prior = torch.tensor([5.0, 2, 2, 2, 2, 2, 2, 2, 0])


class BagOfWords(nn.Module):
    def __init__(self, n_words, dim=16):
        super().__init__()
        self.emb = nn.Embedding(n_words, dim, padding_idx=PAD)
        self.fc = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, ids):
        keep = (ids != PAD).unsqueeze(-1).float()
        return self.fc((self.emb(ids) * keep).sum(1)).squeeze(1)


def batch(n, t=10):
    ids = torch.multinomial(prior, n * t, replacement=True).view(n, t)
    length = torch.randint(3, t + 1, (n, 1))
    ids = ids.masked_fill(torch.arange(t) >= length, PAD)
    total = score[ids].sum(1)
    return ids, (total > -2.5).float()


model = BagOfWords(len(vocab))
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
loss_fn = nn.BCEWithLogitsLoss()
for step in range(400):
    ids, y = batch(64)
    loss = loss_fn(model(ids), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 80 == 79:
        with torch.no_grad():
            ids, y = batch(2000)
            out = model(ids)
            acc = ((out > 0).float() == y).float().mean().item()
        print(f"step {step} loss {loss_fn(out, y).item():.4f} acc {acc:.3f}")
