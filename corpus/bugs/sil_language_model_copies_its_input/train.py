import torch
import torch.nn as nn

torch.manual_seed(0)
V = 30


class CharLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, 32)
        self.rnn = nn.LSTM(32, 48, batch_first=True)
        self.head = nn.Linear(48, V)

    def forward(self, ids):
        return self.head(self.rnn(self.emb(ids))[0])


text = (torch.arange(4000) * 7 + torch.randint(0, 3, (4000,))) % V
model = CharLM()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(100):
    start = torch.randint(0, 3900, (16,))
    window = torch.stack([text[s : s + 25] for s in start])
    inputs, targets = window[:, :-1], window[:, :-1]
    logits = model(inputs)
    loss = nn.functional.cross_entropy(logits.reshape(-1, V), targets.reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 19:
        print(f"step {step} loss {loss.item():.4f}")
