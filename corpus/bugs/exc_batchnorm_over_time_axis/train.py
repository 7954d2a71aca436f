import torch
import torch.nn as nn

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(40, 24)
        self.norm = nn.BatchNorm1d(24)
        self.rnn = nn.GRU(24, 32, batch_first=True)
        self.out = nn.Linear(32, 5)

    def forward(self, ids):
        x = self.norm(self.emb(ids))
        return self.out(self.rnn(x)[0])


ids = torch.randint(0, 40, (300, 11))
tags = ids % 5
model = Tagger()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(50):
    i = torch.randint(0, 300, (20,))
    loss = nn.functional.cross_entropy(model(ids[i]).flatten(0, 1), tags[i].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.4f}")
