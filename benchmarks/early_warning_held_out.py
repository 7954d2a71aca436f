"""Ten small trainings that diverge and ten that do not: `python early_warning_held_out.py NAME [SEED]` runs one. No condition was chosen by them.

Those that diverge do so for a reason that people meet: a rate that is too large or grows too far, gradients of a recurrent net
or a bootstrapped target. Among the others are those that look alike: gradient descent at the edge of stability,
the way out of a plateau, a loss that spikes and comes back, tiny noisy batches, a GAN.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = 240
Batches = Callable[[], tuple[Tensor, Tensor]]
Loss = Callable[[int], Tensor]


def mlp(*sizes: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


class Block(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def attend(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))

    def feed(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.n1(x))
        return x + self.feed(self.n2(x))


class GPT(nn.Module):
    def __init__(self, d: int = 48, layers: int = 3, vocab: int = 64) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, d), nn.Embedding(32, d)
        self.blocks = nn.ModuleList(Block(d, 4) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def sentences(batch: int = 16, length: int = 32, vocab: int = 64) -> Tensor:
    """Each token is mostly a fixed function of the one before it."""
    ids = torch.randint(0, vocab, (batch, length + 1))
    for t in range(1, length + 1):
        rule = (3 * ids[:, t - 1] + 1) % vocab
        ids[:, t] = torch.where(torch.rand(batch) < 0.9, rule, ids[:, t])
    return ids


def language(model: GPT) -> Loss:
    def loss(step: int) -> Tensor:
        ids = sentences()
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    return loss


def digits(n: int = 512, noise: float = 0.2) -> tuple[Tensor, Tensor]:
    y = torch.randint(0, 10, (n,))
    centres = torch.randn(10, 1, 12, 12)
    wrong = torch.rand(n) < noise
    return centres[y] + 1.5 * torch.randn(n, 1, 12, 12), torch.where(wrong, torch.randint(0, 10, (n,)), y)


def classify(model: nn.Module, x: Tensor, y: Tensor, batch: int) -> Loss:
    def loss(step: int) -> Tensor:
        rows = torch.randint(0, len(x), (batch,))
        return F.cross_entropy(model(x[rows]), y[rows])

    return loss


def regress(model: nn.Module, batch: int | None = 64, n: int = 512, width: int = 16) -> Loss:
    x = torch.randn(n, width) * torch.linspace(0.2, 2.0, width)
    y = torch.sin(x @ torch.randn(width, 1)) + 0.1 * torch.randn(n, 1)

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, n, (batch,)) if batch else slice(None)
        return F.mse_loss(model(x[rows]), y[rows])

    return loss


def cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, 10)
    )


Run = tuple[nn.Module, torch.optim.Optimizer, Loss, Callable[[int], float] | None]
"""The model, the optimizer, the loss of a step, and the learning rate by step."""


def sgd(model: nn.Module, rate: float, momentum: float = 0.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), rate, momentum=momentum)


# -- those that diverge ----------------------------------------------------------------------------


def rate_ramp_sgd() -> Run:
    model = mlp(16, 64, 64, 1)
    return model, sgd(model, 0.01), regress(model), lambda step: 0.02 * 1.03**step


def rate_ramp_momentum() -> Run:
    model = cnn()
    x, y = digits()
    return model, sgd(model, 0.001, 0.9), classify(model, x, y, 32), lambda step: 0.002 * 1.03**step


def rate_ramp_adam_gpt() -> Run:
    model = GPT()
    return model, torch.optim.AdamW(model.parameters(), 1e-3), language(model), lambda step: 1e-3 * 1.03**step


def rate_ramp_sgd_gpt() -> Run:
    model = GPT(layers=4)
    return model, sgd(model, 0.05, 0.9), language(model), lambda step: 0.02 * 1.03**step


def recurrent_sgd() -> Run:
    net, head = nn.RNN(8, 48, batch_first=True), nn.Linear(48, 1)
    model = nn.ModuleList([net, head])

    def loss(step: int) -> Tensor:
        x = torch.randn(32, 40, 8)
        return F.mse_loss(head(net(x)[0][:, -1]), x[:, -6:].sum((1, 2))[:, None])

    return model, sgd(model, 0.01), loss, lambda step: 0.004 * 1.02**step


def rate_raised() -> Run:
    model = mlp(16, 64, 64, 1, act=nn.Tanh)
    return model, sgd(model, 0.05), regress(model), lambda step: 0.05 if step < 120 else 1.1


def heavy_momentum() -> Run:
    model = mlp(16, 64, 1)
    return model, sgd(model, 0.12, 0.98), regress(model), None


def rate_ramp_adam() -> Run:
    model = mlp(16, 64, 64, 1)
    return model, torch.optim.Adam(model.parameters(), 1e-3), regress(model), lambda step: 1e-3 * 1.035**step


def bootstrap() -> Run:
    model = mlp(8, 64, 1)
    x = torch.randn(256, 8)

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, 256, (32,))
        with torch.no_grad():
            target = 0.3 + 1.15 * model(x[(rows + 1) % 256])
        return F.mse_loss(model(x[rows]), target)

    return model, torch.optim.Adam(model.parameters(), 3e-3), loss, None


def deep_without_norm() -> Run:
    model = mlp(16, *[48] * 8, 1)
    return model, sgd(model, 0.02, 0.9), regress(model), lambda step: 0.005 * 1.025**step


# -- those that do not -----------------------------------------------------------------------------


def plain_sgd() -> Run:
    model = mlp(16, 64, 64, 1)
    return model, sgd(model, 0.05), regress(model), None


def edge_of_stability() -> Run:
    model = mlp(16, 64, 64, 1, act=nn.Tanh)
    return model, sgd(model, 0.12), regress(model, batch=None), None


def one_cycle() -> Run:
    model = cnn()
    x, y = digits()
    top = lambda step: 0.05 * (step / 80 if step < 80 else 0.5 + 0.5 * math.cos((step - 80) / 160 * math.pi)) + 1e-3  # noqa: E731
    return model, sgd(model, 0.001, 0.9), classify(model, x, y, 32), top


def gpt_with_warm_up() -> Run:
    model = GPT()
    warm = lambda step: 3e-3 * min(1.0, (step + 1) / 40) * (0.5 + 0.5 * math.cos(step / STEPS * math.pi))  # noqa: E731
    return model, torch.optim.AdamW(model.parameters(), 1e-3), language(model), warm


def recurrent_clipped() -> Run:
    net, head = nn.LSTM(8, 48, batch_first=True), nn.Linear(48, 1)
    model = nn.ModuleList([net, head])

    def loss(step: int) -> Tensor:
        x = torch.randn(32, 20, 8)
        return F.mse_loss(head(net(x)[0][:, -1]), x[:, -6:].sum((1, 2))[:, None])

    model.clip = 1.0
    return model, torch.optim.Adam(model.parameters(), 3e-3), loss, None


def out_of_a_plateau() -> Run:
    model = mlp(16, 64, 64, 64, 1, act=nn.Sigmoid)
    return model, sgd(model, 0.1), regress(model), None


def to_zero_loss() -> Run:
    model = mlp(144, 128, 10)
    x, y = digits(128, 0.0)
    return model, torch.optim.AdamW(model.parameters(), 3e-3), classify(model, x.flatten(1), y, 64), None


def tiny_batches() -> Run:
    model = mlp(16, 64, 1)
    return model, sgd(model, 0.02), regress(model, batch=2), None


def spike_that_returns() -> Run:
    model = mlp(16, 128, 1)
    return model, sgd(model, 0.3), regress(model, batch=None), lambda step: 0.1 if step < 60 else 0.3


def gan() -> Run:
    maker, judge = mlp(8, 64, 2), mlp(2, 64, 1)
    model = nn.ModuleList([maker, judge])
    second = torch.optim.Adam(judge.parameters(), 1e-3, betas=(0.5, 0.99))

    def loss(step: int) -> Tensor:
        angle = torch.rand(64) * 6.28
        real = torch.stack([angle.cos(), angle.sin()], 1)
        fake = maker(torch.randn(64, 8))
        told = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        second.zero_grad()
        told.backward()
        second.step()
        return F.softplus(-judge(fake)).mean()

    return model, torch.optim.Adam(maker.parameters(), 1e-3, betas=(0.5, 0.99)), loss, None


DIVERGING = (
    rate_ramp_sgd, rate_ramp_momentum, rate_ramp_adam_gpt, rate_ramp_sgd_gpt, recurrent_sgd,
    rate_raised, heavy_momentum, rate_ramp_adam, bootstrap, deep_without_norm,
)  # fmt: skip
HEALTHY = (
    plain_sgd, edge_of_stability, one_cycle, gpt_with_warm_up, recurrent_clipped,
    out_of_a_plateau, to_zero_loss, tiny_batches, spike_that_returns, gan,
)  # fmt: skip
RUNS = {"diverges": DIVERGING, "healthy": HEALTHY}
NAMED = {run.__name__: run for run in (*DIVERGING, *HEALTHY)}


def train(name: str, seed: int = 0) -> Iterator[tuple[int, float, nn.Module]]:
    """Gives step, loss and model before each step of the optimizer."""
    torch.manual_seed(seed)
    model, optimizer, loss_of, rate = NAMED[name]()
    for step in range(STEPS):
        if rate is not None:
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        if hasattr(model, "clip"):
            nn.utils.clip_grad_norm_(model.parameters(), model.clip)
        yield step, loss.item(), model
        optimizer.step()
        if not math.isfinite(loss.item()):
            return


if __name__ == "__main__":
    for step, loss, _ in train(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0):
        if step % 40 == 0:
            print(step, loss)
