"""Small trainings that diverge and healthy ones that look like them: `python early_warning_trainings.py NAME [SEED]` runs one.

All three sets were used to choose the condition `weight_runaway` (docs/adr/0021-early-warning.md); `early_warning_held_out.py` was not.
Those that diverge learn first: the trouble develops while the loss looks well.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = 300
Loss = Callable[[int], Tensor]
Rate = Callable[[int], float]
Training = tuple[nn.Module, torch.optim.Optimizer, Loss, Rate | None]
"""The model, the optimizer, the loss of a step, and the learning rate by step."""


# -- parts -----------------------------------------------------------------------------------------


def mlp(*sizes: int, act: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


class Block(nn.Module):
    def __init__(self, d: int, heads: int, after: bool, drop: float) -> None:
        super().__init__()
        self.heads, self.after, self.drop = heads, after, nn.Dropout(drop)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qk, self.v, self.out = nn.Linear(d, 2 * d), nn.Linear(d, d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def attend(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        parts = (*self.qk(x).chunk(2, -1), self.v(x))
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))

    def feed(self, x: Tensor) -> Tensor:
        return self.drop(self.down(F.gelu(self.up(x))))

    def forward(self, x: Tensor) -> Tensor:
        if self.after:
            x = self.n1(x + self.attend(x))
            return self.n2(x + self.feed(x))
        x = x + self.attend(self.n1(x))
        return x + self.feed(self.n2(x))


class GPT(nn.Module):
    def __init__(self, d: int = 32, layers: int = 2, vocab: int = 32, after: bool = False, drop: float = 0.0) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, d), nn.Embedding(16, d)
        self.blocks = nn.ModuleList(Block(d, 4, after, drop) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def sentences(batch: int, length: int = 16, vocab: int = 32, sure: float = 0.9) -> Tensor:
    """Each token is mostly a fixed function of the one before it."""
    ids = torch.randint(0, vocab, (batch, length + 1))
    for t in range(1, length + 1):
        rule = (3 * ids[:, t - 1] + 1) % vocab
        ids[:, t] = torch.where(torch.rand(batch) < sure, rule, ids[:, t])
    return ids


def language(model: nn.Module, batch: int = 8, sure: Rate = lambda step: 0.9) -> Loss:
    texts: dict[float, Tensor] = {}

    def loss(step: int) -> Tensor:
        if sure(step) not in texts:
            texts[sure(step)] = sentences(2000, sure=sure(step))
        ids = texts[sure(step)][torch.randint(0, 2000, (batch,))]
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    return loss


def digits(n: int = 512, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    y = torch.randint(0, 10, (n,))
    centres = torch.randn(10, 1, 12, 12)
    wrong = torch.rand(n) < noise
    return centres[y] + 1.5 * torch.randn(n, 1, 12, 12), torch.where(wrong, torch.randint(0, 10, (n,)), y)


def classify(
    model: nn.Module, batch: int = 32, n: int = 512, noise: float = 0.1, scale: Rate = lambda step: 1.0
) -> Loss:
    x, y = digits(n, noise)

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, n, (batch,))
        return F.cross_entropy(model(x[rows] * scale(step)), y[rows])

    return loss


def regress(model: nn.Module, batch: int | None = 64, n: int = 512, width: int = 16, scale: Rate | None = None) -> Loss:
    x = torch.randn(n, width) * torch.linspace(0.2, 2.0, width)
    y = torch.sin(x @ torch.randn(width, 1)) + 0.1 * torch.randn(n, 1)

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, n, (batch,)) if batch else slice(None)
        return F.mse_loss(model(x[rows] * (scale(step) if scale else 1.0)), y[rows])

    return loss


def cnn(drop: float = 0.0) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(drop), nn.Linear(16 * 64, 10)
    )  # fmt: skip


def sgd(model: nn.Module, rate: float, momentum: float = 0.0, **more: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), rate, momentum=momentum, **more)


def adam(model: nn.Module, rate: float, **more: object) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), rate, **more)  # type: ignore[arg-type]


class HalfAdam(torch.optim.Optimizer):
    """Adam that keeps the second moment in half precision, where squares of small gradients are zero."""

    def __init__(self, parameters: object, rate: float) -> None:
        super().__init__(parameters, {"lr": rate})  # type: ignore[arg-type]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p, dtype=torch.float16)
                state["m"].lerp_(p.grad, 0.1)
                state["v"].copy_(state["v"] * 0.98 + 0.02 * p.grad.square().half())
                p.sub_(group["lr"] * state["m"] / (state["v"].float().sqrt() + 1e-6))


class Recurrent(nn.Module):
    def __init__(self, kind: str = "RNN", width: int = 48, **more: object) -> None:
        super().__init__()
        self.net, self.head = getattr(nn, kind)(8, width, batch_first=True, **more), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(x)[0][:, -1])


def remember(model: nn.Module, length: int = 30, back: int = 6) -> Loss:
    def loss(step: int) -> Tensor:
        x = torch.randn(32, length, 8)
        return F.mse_loss(model(x), x[:, -back:].sum((1, 2))[:, None] / 4)

    return loss


class Residual(nn.Module):
    """Blocks without norms."""

    def __init__(self, width: int = 32, depth: int = 6) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, width), nn.Linear(width, 1)
        self.blocks = nn.ModuleList(mlp(width, 2 * width, width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


class Experts(nn.Module):
    def __init__(self, d: int = 16, experts: int = 6) -> None:
        super().__init__()
        self.router = nn.Linear(d, experts)
        self.experts = nn.ModuleList(mlp(d, 32, d) for _ in range(experts))
        self.head = nn.Linear(d, 1)

    def forward(self, x: Tensor) -> Tensor:
        share = self.router(x).softmax(-1)
        top = share.max(-1)
        y = torch.zeros_like(x)
        for k, expert in enumerate(self.experts):
            chosen = (top.indices == k).float()[:, None]
            y = y + chosen * expert(x)
        return self.head(x + y * top.values[:, None])


# -- the first set: those that diverge -------------------------------------------------------------


def ramp_gpt() -> Training:
    model = GPT()
    return model, adam(model, 1e-3), language(model), lambda step: 1e-3 * 1.03**step


def no_warm_up() -> Training:
    model = GPT(layers=3, after=True)
    return model, adam(model, 1e-3, betas=(0.9, 0.95), weight_decay=0.0), language(model), lambda step: 2e-4 * step


class Linear(nn.Module):
    """Attention without a softmax: its scores have no bound."""

    def __init__(self, d: int = 24) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(32, d), nn.Linear(d, 32)
        self.qk, self.v = (
            nn.ModuleList(nn.Linear(d, 2 * d) for _ in range(3)),
            nn.ModuleList(nn.Linear(d, d) for _ in range(3)),
        )

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for qk, v in zip(self.qk, self.v, strict=True):
            q, k = qk(x).chunk(2, -1)
            x = x + (q @ k.mT / 24).tril() @ v(x) / 4
        return self.head(x)


def attention_grows() -> Training:
    model = Linear()
    return model, adam(model, 1e-3, weight_decay=0.0), language(model), lambda step: 2e-3 * 1.02**step


def half_moment() -> Training:
    model = mlp(16, 64, 64, 1)
    return model, HalfAdam(model.parameters(), 3e-3), regress(model, batch=None, n=64), None


def drifting_data() -> Training:
    model = mlp(16, 64, 64, 1)
    return model, sgd(model, 0.02, 0.9), regress(model, scale=lambda step: max(1.0, 1.03 ** (step - 80))), None


def recurrent_ramp() -> Training:
    model = Recurrent(nonlinearity="relu")
    return model, sgd(model, 0.01, 0.9), remember(model), lambda step: 0.001 * 1.012**step


def growing_weights() -> Training:
    model = Residual()
    return model, adam(model, 1e-3, weight_decay=0.0), regress(model), lambda step: 2e-3 * 1.012**step


def experts_collapse() -> Training:
    model = Experts()
    groups = [{"params": model.router.parameters(), "lr": 0.3}, {"params": [*model.experts.parameters(), *model.head.parameters()], "lr": 0.05}]  # fmt: skip
    return model, torch.optim.SGD(groups, momentum=0.9), regress(model, batch=32), lambda step: 0.01 * 1.012**step


def critic_without_bounds() -> Training:
    maker, judge = mlp(8, 64, 2), mlp(2, 64, 64, 1)
    model = nn.ModuleList([maker, judge])

    def loss(step: int) -> Tensor:
        angle = torch.rand(64) * 6.28
        real = torch.stack([angle.cos(), angle.sin()], 1)
        fake = maker(torch.randn(64, 8))
        return F.mse_loss(judge(real), 1 + 0.9 * judge(fake).detach()) + 0.3 * (judge(fake) - judge(real)).pow(2).mean()

    return model, sgd(model, 0.02, 0.9), loss, lambda step: 0.004 * 1.016**step


# -- the first set: healthy ------------------------------------------------------------------------


def warm_up_gpt() -> Training:
    model = GPT()
    rate = lambda step: 3e-3 * min(1.0, (step + 1) / 60) * (0.5 + 0.5 * math.cos(step / STEPS * math.pi))  # noqa: E731
    return model, adam(model, 1e-3), language(model), rate


def tiny_batches() -> Training:
    model = cnn()
    return model, adam(model, 1e-3), classify(model, batch=2), None


def steps_in_the_rate() -> Training:
    model = cnn()
    return model, sgd(model, 0.01, 0.9), classify(model), lambda step: (0.002, 0.01, 0.001, 0.01)[step // 75]


def curriculum() -> Training:
    model = GPT(layers=2)
    return model, adam(model, 2e-3), language(model, sure=lambda step: (1.0, 0.9, 0.7, 0.5)[step // 75]), None


def policy_gradient() -> Training:
    model = mlp(8, 32, 4)
    x = torch.randn(128, 8)
    best = x[:, :4].argmax(1)

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, 128, (16,))
        chances = torch.distributions.Categorical(logits=model(x[rows]))
        acts = chances.sample()
        reward = (acts == best[rows]).float() + torch.randn(16)
        return -(chances.log_prob(acts) * reward).mean()

    return model, adam(model, 3e-3), loss, None


def strong_dropout() -> Training:
    model = cnn(0.6)
    return model, sgd(model, 0.01, 0.9), classify(model), None


def cyclic_rate() -> Training:
    model = cnn()
    return model, sgd(model, 0.01, 0.9), classify(model), lambda step: 0.001 + 0.014 * abs((step % 80) / 40 - 1)


def warm_restarts() -> Training:
    model = GPT(layers=2)
    return (
        model,
        adam(model, 3e-3),
        language(model),
        lambda step: 3e-3 * (0.5 + 0.5 * math.cos(step % 100 / 100 * math.pi)),
    )


def long_plateau() -> Training:
    model = mlp(16, 64, 64, 1, act=nn.Sigmoid)
    return model, adam(model, 3e-3), regress(model), None


def spikes_that_pass() -> Training:
    model = mlp(16, 64, 64, 1)
    return model, adam(model, 3e-3), regress(model, scale=lambda step: 5.0 if step in (150, 151, 230) else 1.0), None


STUDIED = {
    "diverges": (
        ramp_gpt, no_warm_up, attention_grows, half_moment,
        drifting_data, recurrent_ramp, growing_weights, experts_collapse, critic_without_bounds,
    ),
    "healthy": (
        warm_up_gpt, tiny_batches, steps_in_the_rate, curriculum, policy_gradient,
        strong_dropout, cyclic_rate, warm_restarts, long_plateau, spikes_that_pass,
    ),
}  # fmt: skip
# -- the second set: those that diverge ------------------------------------------------------------------


class Lstm(nn.Module):
    def __init__(self, vocab: int = 32, width: int = 32) -> None:
        super().__init__()
        self.tokens, self.net, self.head = (
            nn.Embedding(vocab, width),
            nn.LSTM(width, width, batch_first=True),
            nn.Linear(width, vocab),
        )

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.net(self.tokens(ids))[0])


def lstm_ramp() -> Training:
    model = Lstm()
    return model, torch.optim.RMSprop(model.parameters(), 1e-3), language(model), lambda step: 2e-3 * 1.025**step


def cnn_ramp() -> Training:
    model = cnn()
    return model, sgd(model, 0.01, 0.9), classify(model), lambda step: 0.005 * 1.015**step


def rate_not_lowered() -> Training:
    """A schedule in the wrong direction: the rate is doubled every 40 steps instead of halved."""
    model = mlp(16, 64, 64, 1)
    return model, torch.optim.Adam(model.parameters(), 1e-3), regress(model), lambda step: 2e-3 * 2.0 ** (step // 40)


def own_targets() -> Training:
    """Targets that the model makes itself, larger each time."""
    model = mlp(8, 64, 1)
    x = torch.randn(256, 8)

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, 256, (32,))
        with torch.no_grad():
            target = x[rows, :1] + 1.05 * model(x[(rows + 1) % 256])
        return F.mse_loss(model(x[rows]), target)

    return model, torch.optim.Adam(model.parameters(), 3e-3), loss, None


def momentum_ramp() -> Training:
    model = Residual(depth=4)
    optimizer = sgd(model, 0.004, 0.5)
    usual = regress(model)

    def loss(step: int) -> Tensor:
        for group in optimizer.param_groups:
            group["momentum"] = min(0.999, 0.5 + step / 400)
        return usual(step)

    return model, optimizer, loss, lambda step: 0.004 * 1.008**step


def gru_far_back() -> Training:
    model = Recurrent("GRU", 32)
    return model, sgd(model, 0.05, 0.95), remember(model, 24, 12), lambda step: 0.02 * 1.013**step


def quartic() -> Training:
    """A loss whose curvature grows with the distance."""
    model = mlp(16, 64, 1, act=nn.Tanh)
    x, w = torch.randn(512, 16), torch.randn(16, 1)

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, 512, (64,))
        return (model(x[rows]) - torch.sin(x[rows] @ w)).pow(4).mean()

    return model, sgd(model, 0.05, 0.9), loss, lambda step: 0.02 * 1.016**step


def autoencoder_no_norm() -> Training:
    model = mlp(32, 64, 8, 64, 32)
    x = torch.randn(256, 6) @ torch.randn(6, 32)

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, 256, (32,))
        return F.mse_loss(model(x[rows]), x[rows])

    return model, adam(model, 1e-3, betas=(0.9, 0.99), weight_decay=0.0), loss, lambda step: 2e-3 * 1.02**step


def labels_that_grow() -> Training:
    model = mlp(16, 64, 64, 1)
    usual = regress(model)
    x, w = torch.randn(512, 16), torch.randn(16, 1)

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, 512, (64,))
        return (
            F.mse_loss(model(x[rows]), max(1.0, 1.03 ** (step - 100)) * torch.sin(x[rows] @ w))
            if step > 100
            else usual(step)
        )

    return model, sgd(model, 0.02, 0.9), loss, None


# -- the second set: healthy -----------------------------------------------------------------------------


def small_start_gpt() -> Training:
    """Initialised as GPT-2 is, with a warm-up: weights grow manifold."""
    model = GPT()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    return model, adam(model, 1e-3, betas=(0.9, 0.95)), language(model), lambda step: 2e-3 * min(1.0, (step + 1) / 100)


class Lora(nn.Module):
    def __init__(self, d: int = 64) -> None:
        super().__init__()
        self.base = mlp(16, d, d, 1)
        for p in self.base.parameters():
            p.requires_grad_(False)
        self.a, self.b = nn.Linear(16, 4, bias=False), nn.Linear(4, 1, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.b(self.a(x))


def lora_noisy() -> Training:
    model = Lora()
    trained = [p for p in model.parameters() if p.requires_grad]
    return (
        model,
        torch.optim.AdamW(trained, 1e-3),
        regress(model, batch=8),
        lambda step: 1e-3 * min(1.0, (step + 1) / 80),
    )


def zero_start_residual() -> Training:
    model = Residual(depth=4)
    for block in model.blocks:
        nn.init.zeros_(block[2].weight)
    return model, adam(model, 2e-3), regress(model), None


def gan() -> Training:
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


def edge_of_stability() -> Training:
    model = mlp(16, 64, 64, 1, act=nn.Tanh)
    return model, sgd(model, 0.12), regress(model, batch=None), None


def one_cycle_high() -> Training:
    model = cnn()
    return model, sgd(model, 0.001, 0.9), classify(model), lambda step: 0.001 + 0.03 * math.sin(math.pi * step / STEPS)


def q_learning() -> Training:
    model, target = mlp(8, 64, 4), mlp(8, 64, 4)
    x = torch.randn(256, 8)

    def loss(step: int) -> Tensor:
        if step % 50 == 0:
            target.load_state_dict(model.state_dict())
        rows, acts = torch.randint(0, 256, (32,)), torch.randint(0, 4, (32, 1))
        with torch.no_grad():
            worth = x[rows].gather(1, acts) + 0.9 * target(x[(rows + 1) % 256]).max(1, keepdim=True).values
        return F.smooth_l1_loss(model(x[rows]).gather(1, acts), worth)

    return model, adam(model, 1e-3), loss, None


def forgets_and_learns() -> Training:
    """Another task half-way."""
    model = mlp(16, 64, 64, 1)
    first, second = regress(model), regress(model)
    return model, adam(model, 2e-3), lambda step: (first if step < 150 else second)(step), None


def two_spirals_adam() -> Training:
    model = mlp(2, 64, 64, 2, act=nn.Tanh)
    t = torch.rand(400) * 6 + 0.5
    side = torch.randint(0, 2, (400,))
    angle = t + math.pi * side
    x = torch.stack([t * angle.cos(), t * angle.sin()], 1) / 6

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, 400, (50,))
        return F.cross_entropy(model(x[rows]), side[rows])

    return model, adam(model, 5e-3), loss, None


def pretrained_fine_tuned() -> Training:
    """A large rate for a new head on weights that are small and kept."""
    model = GPT(layers=1)
    nn.init.normal_(model.head.weight, std=0.002)
    groups = [{"params": model.head.parameters(), "lr": 5e-3}, {"params": [p for n, p in model.named_parameters() if "head" not in n], "lr": 1e-4}]  # fmt: skip
    return model, torch.optim.AdamW(groups), language(model, sure=lambda step: 0.5), None


SECOND = {
    "diverges": (
        lstm_ramp, cnn_ramp, rate_not_lowered, own_targets,
        momentum_ramp, gru_far_back, quartic, autoencoder_no_norm, labels_that_grow,
    ),
    "healthy": (
        small_start_gpt, lora_noisy, zero_start_residual, gan, edge_of_stability,
        one_cycle_high, q_learning, forgets_and_learns, two_spirals_adam, pretrained_fine_tuned,
    ),
}  # fmt: skip
# -- the third set: those that diverge ------------------------------------------------------------------


def gpt_plain_descent() -> Training:
    model = GPT(layers=2)
    return model, sgd(model, 0.1, 0.9), language(model), lambda step: 0.1 * 1.015**step


def batch_norm_ramp() -> Training:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    return model, adam(model, 1e-3, weight_decay=0.0), classify(model), lambda step: 2e-3 * 1.022**step


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters: object, rate: float) -> None:
        super().__init__(parameters, {"lr": rate})  # type: ignore[arg-type]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                m = state.setdefault("m", torch.zeros_like(p))
                p.sub_(group["lr"] * (0.9 * m + 0.1 * p.grad).sign())
                m.lerp_(p.grad, 0.01)


def lion_ramp() -> Training:
    model = mlp(16, 64, 64, 64, 1)
    return model, Lion(model.parameters(), 1e-3), regress(model), lambda step: 3e-4 * 1.016**step


def two_networks() -> Training:
    """Each learns what the other says, and a little more."""
    a, b = mlp(8, 48, 4), mlp(8, 48, 4)
    model = nn.ModuleList([a, b])
    x = torch.randn(256, 8)

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, 256, (64,))
        y = x[rows]
        return F.mse_loss(a(y), y[:, :4] + 1.1 * b(y).detach()) + F.mse_loss(b(y), 1.02 * a(y).detach())

    return model, adam(model, 1e-3), loss, lambda step: 1e-3 * 1.008**step


def variances_explode() -> Training:
    model = mlp(16, 64, 8)
    back = mlp(4, 64, 16)
    both = nn.ModuleList([model, back])
    x = torch.randn(512, 4) @ torch.randn(4, 16)

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, 512, (64,))
        mean, log = model(x[rows]).chunk(2, 1)
        z = mean + (0.5 * log).exp() * torch.randn_like(mean)
        return F.mse_loss(back(z), x[rows]) + 0.01 * (mean.square() + log.exp() - log - 1).mean()

    return both, sgd(both, 0.01, 0.9), loss, lambda step: 0.004 * 1.014**step


# -- the third set: healthy -----------------------------------------------------------------------------


def lora_wide() -> Training:
    base = mlp(16, 64, 64)
    for p in base.parameters():
        p.requires_grad_(False)
    a, b, head = nn.Linear(16, 8, bias=False), nn.Linear(8, 64, bias=False), nn.Linear(64, 1)
    nn.init.zeros_(b.weight)
    model = nn.ModuleList([base, a, b, head])
    trained = [p for p in model.parameters() if p.requires_grad]
    x, w = torch.randn(512, 16), torch.randn(16, 1)

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, 512, (8,))
        return F.mse_loss(head(base(x[rows]) + b(a(x[rows]))), torch.sin(x[rows] @ w) + torch.randn(8, 1))

    return model, torch.optim.AdamW(trained, 1e-3), loss, lambda step: 1e-3 * min(1.0, (step + 1) / 100)


def batch_norm_adam() -> Training:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    return model, adam(model, 3e-3), classify(model), None


def vae_with_annealing() -> Training:
    model, back = mlp(16, 64, 8), mlp(4, 64, 16)
    both = nn.ModuleList([model, back])
    x = torch.randn(512, 4) @ torch.randn(4, 16)

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, 512, (64,))
        mean, log = model(x[rows]).chunk(2, 1)
        z = mean + (0.5 * log).exp() * torch.randn_like(mean)
        return F.mse_loss(back(z), x[rows]) + min(1.0, step / 200) * (mean.square() + log.exp() - log - 1).mean()

    return both, adam(both, 3e-3), loss, None


def contrastive() -> Training:
    model = mlp(16, 64, 32)

    def loss(step: int) -> Tensor:
        x = torch.randn(32, 16)
        a, b = (F.normalize(model(x + 0.3 * torch.randn_like(x)), dim=1) for _ in range(2))
        return F.cross_entropy(a @ b.T / 0.1, torch.arange(32))

    return model, adam(model, 3e-3), loss, None


def post_norm_warmed_up() -> Training:
    model = GPT(layers=3, after=True, drop=0.1)
    return model, adam(model, 1e-3), language(model), lambda step: 2e-3 * min((step + 1) / 80, (80 / (step + 1)) ** 0.5)


def actor_critic() -> Training:
    body, actor, critic = mlp(8, 32, 32), nn.Linear(32, 4), nn.Linear(32, 1)
    model = nn.ModuleList([body, actor, critic])
    x = torch.randn(128, 8)
    best = x[:, :4].argmax(1)

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, 128, (16,))
        h = body(x[rows]).relu()
        chances, worth = torch.distributions.Categorical(logits=actor(h)), critic(h)[:, 0]
        acts = chances.sample()
        reward = 2.0 * (acts == best[rows]).float() + torch.randn(16)
        return (
            -(chances.log_prob(acts) * (reward - worth.detach())).mean()
            + F.mse_loss(worth, reward)
            - 0.01 * chances.entropy().mean()
        )

    return model, adam(model, 5e-3), loss, None


def lstm_clipped() -> Training:
    model = Lstm()
    usual = language(model)

    def loss(step: int) -> Tensor:
        return usual(step)

    for p in model.parameters():
        p.register_hook(lambda g: g.clamp(-0.1, 0.1))
    return model, torch.optim.Adam(model.parameters(), 5e-3), loss, None


def noisy_labels_high_rate() -> Training:
    model = cnn()
    return model, sgd(model, 0.02, 0.9), classify(model, noise=0.4, n=4096, batch=16), None


def large_rate_full_batch() -> Training:
    model = mlp(16, 48, 1, act=nn.Tanh)
    return model, sgd(model, 0.3), regress(model, batch=None, n=256), None


def from_a_saddle() -> Training:
    """A deep linear net from a small start: the loss stands still while the weights grow."""
    model = nn.Sequential(*(nn.Linear(12, 12, bias=False) for _ in range(3)))
    for p in model.parameters():
        nn.init.normal_(p, std=0.08)
    x, w = torch.randn(256, 12), torch.randn(12, 12) / 3

    def loss(step: int) -> Tensor:
        rows = torch.randint(0, 256, (64,))
        return F.mse_loss(model(x[rows]), x[rows] @ w)

    return model, sgd(model, 0.1, 0.9), loss, None


THIRD = {
    "diverges": (
        gpt_plain_descent, batch_norm_ramp, lion_ramp, two_networks, variances_explode,
    ),
    "healthy": (
        lora_wide, batch_norm_adam, vae_with_annealing, contrastive, post_norm_warmed_up,
        actor_critic, lstm_clipped, noisy_labels_high_rate, large_rate_full_batch, from_a_saddle,
    ),
}  # fmt: skip
NAMED = {make.__name__: make for runs in (STUDIED, SECOND, THIRD) for kind in runs.values() for make in kind}


def train(name: str, seed: int = 0) -> list[float]:
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    _model, optimizer, loss_of, rate = NAMED[name]()
    losses: list[float] = []
    bad = 0
    for step in range(STEPS):
        if rate is not None:
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        bad += not abs(losses[-1]) < 1e6
        if bad > 5:
            break
    return losses


if __name__ == "__main__":
    values = train(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(" ".join(f"{value:.3g}" for value in values[:: max(1, len(values) // 25)]), len(values))
