"""A small GPT under torch.compile with tied embeddings and a cosine schedule, in the manner of nanoGPT."""

import math

import torch
from fingerprint import report
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)  # compiled code adds up an embedding's gradient in the order in which its threads come
V, C, T = 48, 32, 24


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.mlp = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C))

    def forward(self, x):
        q, k, v = (part.view(*x.shape[:2], 4, -1).transpose(1, 2) for part in self.qkv(self.ln1(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.ln, self.head = nn.LayerNorm(C), nn.Linear(C, V, bias=False)
        self.head.weight = self.wte.weight
        nn.init.normal_(self.wte.weight, 0, 0.02)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        return nn.functional.cross_entropy(self.head(self.ln(x)).view(-1, V), targets.reshape(-1))


gpt = GPT()
model = torch.compile(gpt)
decay = [p for p in gpt.parameters() if p.dim() >= 2]
rest = [p for p in gpt.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=3e-3)
for step in range(40):
    for group in optimizer.param_groups:
        group["lr"] = 3e-3 * min(1, (step + 1) / 5) * 0.5 * (1 + math.cos(math.pi * step / 40))
    data = torch.randint(0, V, (8, T + 1))
    data[:, 1::2] = (data[:, :-1:2] * 5 + 1) % V
    loss = model(data[:, :-1], data[:, 1:])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(step, f"{loss.item():.6f}")
report(gpt, optimizer)
