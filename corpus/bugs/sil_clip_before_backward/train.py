import torch
from torch import nn

torch.manual_seed(0)


class CharModel(nn.Module):
    def __init__(self, vocab=20, d=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.rnn = nn.RNN(d, d, batch_first=True)
        self.out = nn.Linear(d, vocab)

    def forward(self, t):
        h, _ = self.rnn(self.embed(t))
        return self.out(h)


text = torch.arange(4000) * 7 % 20
model = CharModel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(150):
    start = torch.randint(0, 3900, (16,))
    rows = torch.stack([text[s : s + 25] for s in start])
    logits = model(rows[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    optimizer.zero_grad()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    loss.backward()
    optimizer.step()
    if step % 30 == 29:
        print(step, loss.item())
