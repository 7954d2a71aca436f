import torch
import torch.nn as nn

torch.manual_seed(0)


class CharRNN(nn.Module):
    def __init__(self, vocab=16, hidden=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, hidden)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return self.out(h)


ids = torch.randint(0, 16, (400, 13))
ids[:, 1::2] = (ids[:, 0::2][:, :6] + 1) % 16
model = CharRNN()
opt = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(120):
    batch = ids[torch.randint(0, 400, (32,))]
    loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    opt.zero_grad()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    loss.backward()
    opt.step()
    if step % 30 == 29:
        print(f"step {step} loss {loss.item():.4f}")
