import torch
import torch.nn as nn

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.emb = nn.Embedding.from_pretrained(table, freeze=True)
        self.lower = nn.Linear(16, 32)
        self.upper = nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 3)

    def forward(self, ids):
        h = torch.relu(self.lower(self.emb(ids).mean(1)))
        return self.head(self.norm(torch.relu(self.upper(h))))


table = torch.randn(50, 16)
ids = torch.randint(0, 50, (600, 7))
y = (table[ids].mean(1)[:, :3]).argmax(1)
model = Model(table)
opt = torch.optim.AdamW([
    {"params": model.lower.parameters(), "lr": 2e-4},
    {"params": [model.upper.weight], "lr": 1e-3},
    {"params": [model.upper.bias, *model.norm.parameters()], "lr": 1e-3, "weight_decay": 0.0},
    {"params": model.head.parameters(), "lr": 5e-3},
], weight_decay=0.01)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=[5e-4, 2e-3, 2e-3, 1e-2], total_steps=60)
for epoch in range(5):
    for i in torch.randperm(600).split(50):
        loss = nn.functional.cross_entropy(model(ids[i]), y[i], label_smoothing=0.1)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
