# pattern source: alex-matton/causal-transformer-decoder#1, huggingface/transformers#48745, LongxingTan/Time-series-prediction#32
import torch
import torch.nn as nn

torch.manual_seed(0)
VOCAB, T = 12, 20
table = torch.softmax(torch.randn(VOCAB, VOCAB) * 1.5, 1)


def sample(n):
    seq = [torch.randint(0, VOCAB, (n,))]
    for _ in range(T):
        seq.append(torch.multinomial(table[seq[-1]], 1).squeeze(1))
    return torch.stack(seq, 1)


class LM(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Parameter(torch.randn(1, T, d) * 0.1)
        layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, VOCAB)

    def forward(self, ids):
        n = ids.size(1)
        h = self.tok(ids) + self.pos[:, :n]
        h = self.encoder(h, mask=nn.Transformer.generate_square_subsequent_mask(n))
        return self.head(h)


model = LM()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
entropy = -(table * table.log()).sum(1).mean().item()
for step in range(300):
    seq = sample(64)
    loss = nn.functional.cross_entropy(model(seq[:, :-1]).reshape(-1, VOCAB), seq[:, 1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 49:
        with torch.no_grad():
            ids = sample(256)
            nxt = model(ids[:, :8])[:, -1].log_softmax(-1)
            gen = nn.functional.nll_loss(nxt, ids[:, 8]).item()
        print(f"step {step} loss {loss.item():.4f} next-token nll {gen:.4f} (entropy {entropy:.3f})")
