import torch
import torch.nn as nn

torch.manual_seed(0)


class LM(nn.Module):
    def __init__(self, vocab=20, dim=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids, hidden):
        h, hidden = self.rnn(self.emb(ids), hidden)
        return self.out(h), hidden


stream = torch.randint(0, 20, (8, 200))
model = LM()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
hidden = torch.zeros(1, 8, 24)
for start in range(0, 180, 20):
    chunk = stream[:, start : start + 21]
    logits, hidden = model(chunk[:, :-1], hidden)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), chunk[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
print("done", loss.item())
