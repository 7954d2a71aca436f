import torch
import torch.nn as nn

torch.manual_seed(3)


class Encoder(nn.Module):
    def __init__(self, vocab=30, d=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.gate, self.val = nn.Linear(d, d), nn.Linear(d, d)
        self.out = nn.Linear(d, 3)

    def forward(self, tok):
        h = self.emb(tok)
        h = torch.sigmoid(self.gate(h)) * self.val(h)
        return self.out(h.mean(1))


def main():
    model = Encoder()
    compiled = torch.compile(model, backend="aot_eager", dynamic=True)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(80):
        t = int(torch.randint(5, 40, ()))
        y = torch.randint(0, 3, (32,))
        tok = torch.randint(0, 10, (32, t)) + 10 * y[:, None]
        swap = torch.rand(32, t) < 0.5
        tok = torch.where(swap, torch.randint(0, 30, (32, t)), tok)
        loss = nn.functional.cross_entropy(compiled(tok), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 9:
            print(f"step {step} length {t} loss {loss.item():.4f}")
    model.eval()
    with torch.no_grad():
        tok = torch.randint(0, 30, (16, 50))
        same = torch.allclose(model(tok), compiled(tok), atol=1e-5)
    print("eager and compiled agree", same)


if __name__ == "__main__":
    main()
