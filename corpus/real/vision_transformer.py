"""A small vision transformer with gradient accumulation, a GradScaler, warm-up and a validation loop."""

import torch
from fingerprint import report
from torch import nn

torch.manual_seed(0)
images = torch.randn(192, 1, 16, 16) * 0.3
labels = torch.arange(192) % 4
for k in range(4):
    rows, columns = divmod(k, 2)
    images[labels == k, :, rows * 8 : rows * 8 + 8, columns * 8 : columns * 8 + 8] += 0.7


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, 32, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, 32))
        self.position = nn.Parameter(torch.randn(1, 17, 32) * 0.02)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls.expand(len(x), -1, -1), tokens], 1) + self.position
        return self.head(self.encoder(tokens)[:, 0])


model = ViT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
schedule = torch.optim.lr_scheduler.SequentialLR(
    optimizer,
    [
        torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30),
    ],
    [5],
)
scaler = torch.amp.GradScaler("cpu")
for epoch in range(6):
    model.train()
    for start in range(0, 160, 32):
        for micro in range(2):
            part = slice(start + micro * 16, start + micro * 16 + 16)
            loss = nn.functional.cross_entropy(model(images[part]), labels[part]) / 2
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        schedule.step()
    model.eval()
    with torch.inference_mode():
        accuracy = (model(images[160:]).argmax(1) == labels[160:]).float().mean().item()
    print(epoch, f"{loss.item():.6f} {accuracy:.4f}")
report(model, optimizer)
