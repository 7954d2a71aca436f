import torch
from torch import nn


def turn(x):
    steps, size = x.size(-2), x.size(-1)
    frequency = 100 ** (-torch.arange(size // 2) / (size // 2))
    angle = torch.outer(torch.arange(steps), frequency)
    first, second = x[..., : size // 2], x[..., size // 2 :]
    return torch.cat([first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], dim=-1)


class SelfAttention(nn.Module):
    def __init__(self, hidden, n_head):
        super().__init__()
        self.n_head, self.scale = n_head, (hidden // n_head) ** -0.5
        self.in_proj = nn.Linear(hidden, 3 * hidden)
        self.out_proj = nn.Linear(hidden, hidden)

    def forward(self, hidden):
        q, k, v = self.in_proj(hidden).split(hidden.size(-1), dim=-1)
        q, k, v = (part.unflatten(-1, (self.n_head, -1)).permute(0, 2, 1, 3) for part in (q, k, v))
        bias = torch.full((hidden.size(1), hidden.size(1)), float("-inf")).triu(1)
        scores = torch.einsum("bhid,bhjd->bhij", turn(q) * self.scale, turn(k)) + bias
        mixed = torch.softmax(scores, dim=-1) @ v
        return self.out_proj(mixed.permute(0, 2, 1, 3).flatten(2))


class Layer(nn.Module):
    def __init__(self, hidden, n_head):
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden)
        self.attention = SelfAttention(hidden, n_head)
        self.ln_2 = nn.LayerNorm(hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden), nn.Dropout(0.1))

    def forward(self, hidden):
        hidden = self.attention(self.ln_1(hidden)) + hidden
        return self.mlp(self.ln_2(hidden)) + hidden


class Transformer(nn.Module):
    def __init__(self, vocabulary=50, hidden=32, n_head=4, n_layer=2):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, hidden)
        self.wpe = nn.Embedding(32, hidden)
        self.h = nn.ModuleList([Layer(hidden, n_head) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(hidden)
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        hidden = self.wte(tokens) + self.wpe.weight[: tokens.size(1)]
        for layer in self.h:
            hidden = layer(hidden)
        return self.lm_head(self.ln_f(hidden))


def main():
    torch.manual_seed(0)
    net = Transformer()
    matrices = [p for p in net.parameters() if p.dim() >= 2]
    vectors = [p for p in net.parameters() if p.dim() < 2]
    adam = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], lr=3e-3, betas=(0.9, 0.95)
    )
    warmup = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: min(1.0, (step + 1) / 8))
    generator = torch.Generator().manual_seed(1)
    criterion = nn.CrossEntropyLoss(ignore_index=-100)
    for step in range(14):
        adam.zero_grad()
        for _ in range(2):
            tokens = torch.randint(0, 50, (6, 17), generator=generator)
            labels = tokens[:, 1:].clone()
            labels[:, 0] = -100
            loss = criterion(net(tokens[:, :-1]).reshape(-1, 50), labels.reshape(-1)) / 2
            loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        adam.step()
        warmup.step()
        print(f"step {step} loss {loss.item():.8f}")


if __name__ == "__main__":
    main()
