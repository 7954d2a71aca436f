import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
V, D, T, STEPS, WARM = 30, 48, 16, 200, 40


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, D)
        nn.init.normal_(self.emb.weight, std=0.05)
        self.register_buffer("pos", torch.randn(T, D) * 0.05)
        layer = nn.TransformerEncoderLayer(D, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, V, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        t = ids.size(1)
        mask = nn.Transformer.generate_square_subsequent_mask(t)
        return self.head(self.norm(self.blocks(self.emb(ids) + self.pos[:t], mask=mask)))


def batch(n=32):
    start = torch.randint(0, V, (n, 1))
    step = torch.randint(1, 4, (n, 1))
    return (start + step * torch.arange(T + 1)) % V


model = TinyLM()
decay = [p for p in model.parameters() if p.dim() > 1]
plain = [p for p in model.parameters() if p.dim() <= 1]
opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=4e-3)
warm = torch.optim.lr_scheduler.LinearLR(opt, 1e-3, 1.0, WARM)
cool = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.0, STEPS - WARM)
sched = torch.optim.lr_scheduler.SequentialLR(opt, [warm, cool], [WARM])
for step in range(STEPS):
    seq = batch()
    loss = F.cross_entropy(model(seq[:, :-1]).flatten(0, 1), seq[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 40 == 39:
        print(f"step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
