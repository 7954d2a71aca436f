import torch
import torch.nn as nn

torch.manual_seed(0)


class Deep(nn.Module):
    def __init__(self, depth=6, width=64):
        super().__init__()
        self.inp = nn.Linear(16, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 4)

    def forward(self, x):
        x = torch.tanh(self.inp(x))
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.out(x)


x = torch.randn(2000, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
model = Deep()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
for epoch in range(4):
    for idx in torch.randperm(2000).split(100):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(x[idx])
        loss = nn.functional.cross_entropy(logits.float(), y[idx]) / 100000
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    print(f"epoch {epoch} loss {loss.item() * 100000:.4f}")
