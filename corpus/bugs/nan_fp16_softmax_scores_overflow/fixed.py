import torch
import torch.nn as nn

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.q = nn.Linear(d, d)
        self.k = nn.Linear(d, d)
        self.v = nn.Linear(d, d)
        self.d = d

    def forward(self, x):
        q, k, v = self.q(x) * 40, self.k(x) * 40, self.v(x)
        s = torch.matmul(q.float() / self.d, k.float().transpose(1, 2) / 40)
        s = s - s.max(dim=-1, keepdim=True).values
        w = s.exp()
        w = w / w.sum(-1, keepdim=True)
        return torch.matmul(w.to(v.dtype), v)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = Attention()
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        return self.head(self.attn(x).mean(1))


x = torch.randn(300, 10, 64) * 2
y = torch.randint(0, 3, (300,))
model = Model()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(30):
    idx = torch.randint(0, 300, (20,))
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x[idx] * (1 + step / 2))
    loss = nn.functional.cross_entropy(out.float(), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 5 == 4:
        print(f"step {step} loss {loss.item():.4f}")
