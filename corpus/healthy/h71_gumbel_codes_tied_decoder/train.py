import torch
from torch import nn

torch.manual_seed(0)


class Codes(nn.Module):
    def __init__(self, vocab=12, d=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.mix = nn.Linear(d, d)
        self.out = nn.Linear(d, vocab, bias=False)
        self.out.weight = self.embed.weight
        self.codes = nn.Parameter(torch.randn(8, d))
        self.choose = nn.Linear(d, 8)

    def forward(self, tokens, tau):
        h = torch.tanh(self.mix(self.embed(tokens)))
        pick = nn.functional.gumbel_softmax(self.choose(h), tau=tau, hard=True)
        return self.out(h + pick @ self.codes)


model = Codes()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(200):
    tokens = torch.randint(0, 12, (64,))
    loss = nn.functional.cross_entropy(model(tokens, max(0.5, 1 - step / 200)), (tokens * 5 + 1) % 12)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(step, loss.item())
