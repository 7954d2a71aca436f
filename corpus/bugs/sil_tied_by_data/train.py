import torch
import torch.nn as nn

torch.manual_seed(0)


class TiedLM(nn.Module):
    def __init__(self, vocab=24, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab, bias=False)
        self.out.weight.data = self.emb.weight.data

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return self.out(h)


ids = torch.randint(0, 24, (300, 11))
ids[:, 1:] = (ids[:, :1] + torch.arange(1, 11)) % 24
model = TiedLM()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(100):
    batch = ids[torch.randint(0, 300, (32,))]
    loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 24:
        print(f"step {step} loss {loss.item():.4f}")
