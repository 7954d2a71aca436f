import torch
import torch.nn as nn

torch.manual_seed(0)


class Pointer(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)

    def forward(self, query, items, valid):
        scores = self.q(query) @ self.k(items).transpose(1, 2) / 4
        scores = scores.masked_fill(~valid[:, None, :], -1e9)
        return scores.softmax(-1) @ items


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = Pointer()
        self.out = nn.Linear(16, 4)

    def forward(self, query, items, valid):
        return self.out(self.attn(query, items, valid)[:, 0])


model = Net()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(60):
    items, query = torch.randn(16, 6, 16), torch.randn(16, 1, 16)
    count = torch.randint(1, 7, (16,))
    if step > 20:
        count[0] = 0
    valid = torch.arange(6)[None] < count[:, None]
    target = items[:, 0, :4].argmax(1)
    logits = model(query, items, valid)
    some = valid.any(1)
    loss = nn.functional.cross_entropy(logits[some], target[some])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.4f}")
