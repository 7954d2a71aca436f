"""The recommended set is silent on healthy trainings, odd ones too, and speaks up on broken ones."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from trainings import Watched, train  # noqa: E402


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
    torch.set_num_threads(1)


def data(n=32, d=8):
    x = torch.randn(n, d)
    return x, (x[:, :1] * x[:, 1:2]).tanh() + x[:, 2:3]


def regression(model):
    x, y = data()
    return F.mse_loss(model(x), y)


def mlp(act=nn.ReLU):
    return nn.Sequential(nn.Linear(8, 16), act(), nn.Linear(16, 16), act(), nn.Linear(16, 1))


def test_mlp_with_onecycle_is_silent():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=161, div_factor=1000)
    assert train(model, optimizer, regression, scheduler=scheduler).summary() == []


def test_converged_training_is_silent():
    model = nn.Linear(8, 1)
    x = torch.randn(32, 8)
    y = x[:, :1].clone()
    watched = train(model, torch.optim.SGD(model.parameters(), 0.1), lambda m: F.mse_loss(m(x), y), steps=400)
    assert watched.summary() == []


def test_converged_to_a_noise_floor_is_silent():
    """Full batch, so that weights and loss stop moving altogether, with a loss that is not 0."""
    model, (x, y) = nn.Linear(8, 1), data()
    watched = train(model, torch.optim.SGD(model.parameters(), 0.1), lambda m: F.mse_loss(m(x), y), steps=800)
    before = model.weight.detach().clone()
    train(model, torch.optim.SGD(model.parameters(), 0.1), lambda m: F.mse_loss(m(x), y), steps=1)
    assert torch.equal(before, model.weight)
    assert watched.summary() == []


def test_hinge_loss_at_zero_is_silent():
    model = nn.Linear(8, 1)
    x = torch.randn(32, 8)
    y = x[:, :1].sign()
    watched = train(model, torch.optim.SGD(model.parameters(), 0.5), lambda m: F.relu(0.1 - y * m(x)).mean(), steps=400)
    assert float(model.weight.grad.abs().max()) == 0.0
    assert watched.summary() == []


class LoRA(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)
        nn.init.zeros_(self.b.weight)
        self.base.requires_grad_(False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


def test_lora_is_silent():
    model = LoRA()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    target = torch.randn(8, 8)
    watched = train(model, optimizer, lambda m: F.mse_loss(m(x := torch.randn(32, 8)), x @ target))
    assert watched.summary() == []


class MoE(nn.Module):
    """Routes by sign of a feature that is always positive: the second expert never gets a token."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([mlp(), mlp()])
        self.unused = nn.Linear(4, 4)

    def forward(self, x):
        chosen = (x[:, 0].abs() < 0).long()
        out = torch.zeros(len(x), 1)
        for i, expert in enumerate(self.experts):
            out = out.index_add(0, (chosen == i).nonzero()[:, 0], expert(x[chosen == i]))
        return out


def test_idle_experts_and_unused_modules_are_silent():
    model = MoE()
    watched = train(model, torch.optim.SGD(model.parameters(), 0.05), regression)
    assert float(model.experts[1][0].weight.grad.abs().max()) == 0.0  # zero, not None: it was called with nothing
    assert watched.summary() == []


def test_sparse_relu_is_silent():
    model = mlp()
    nn.init.constant_(model[0].bias, -1.5)
    watched = train(model, torch.optim.Adam(model.parameters(), 1e-3), regression)
    assert watched.summary() == []


class Masked(nn.Module):
    """Causal attention whose mask, scores and buffers hold -inf."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.mask = Mask()

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(self.mask(q @ k.mT).softmax(-1) @ v)


class Mask(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("causal", torch.full((6, 6), -torch.inf).triu(1))

    def forward(self, scores):
        return scores + self.causal


def test_masks_of_minus_infinity_are_silent():
    model = Masked()
    watched = train(
        model,
        torch.optim.Adam(model.parameters(), 1e-2),
        lambda m: F.mse_loss(m(x := torch.randn(4, 6, 8)), x.cumsum(1)),
    )
    assert watched.summary() == []


def test_bfloat16_autocast_is_silent():
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 1))

    def loss(m):
        x, y = data()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.mse_loss(m(x).float(), y)

    assert train(model, torch.optim.AdamW(model.parameters(), 1e-2), loss).summary() == []


def adversarial(critic_loss, generator_loss, penalty):
    """A GAN on a ring; both networks are watched, and each gets gradients in the other's turn."""
    generator = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    pair = nn.ModuleDict({"g": generator, "d": critic})
    g_optimizer = torch.optim.Adam(pair["g"].parameters(), 1e-3, betas=(0.5, 0.9))
    d_optimizer = torch.optim.Adam(pair["d"].parameters(), 1e-3, betas=(0.5, 0.9))
    watched = Watched(pair, torch.optim.SGD(pair.parameters(), 0.0))
    for step in range(300):
        angle = torch.rand(64) * 6.28
        real, fake = torch.stack([angle.cos(), angle.sin()], 1), pair["g"](torch.randn(64, 2))
        turn_g = step % 3 == 2
        pair.zero_grad()
        if turn_g:
            loss = generator_loss(pair["d"](fake))
        else:
            loss = critic_loss(pair["d"](real), pair["d"](fake.detach())) + penalty(pair["d"], real, fake.detach())
        watched.loss(loss).backward()
        (g_optimizer if turn_g else d_optimizer).step()
        watched.end_step()
    return watched


def gradient_penalty(d, real, fake):
    mixed = (real + torch.rand(len(real), 1) * (fake - real)).requires_grad_()
    (grad,) = torch.autograd.grad(d(mixed).sum(), mixed, create_graph=True)
    return 10 * ((grad.norm(dim=1) - 1) ** 2).mean()


def test_gan_is_silent():
    bce = F.binary_cross_entropy_with_logits
    watched = adversarial(
        lambda r, f: bce(r, torch.ones_like(r)) + bce(f, torch.zeros_like(f)),
        lambda f: bce(f, torch.ones_like(f)),
        lambda d, r, f: 0.0,
    )
    assert watched.summary() == []


def test_wgan_with_gradient_penalty_and_negative_losses_is_silent():
    watched = adversarial(lambda r, f: f.mean() - r.mean(), lambda f: -f.mean(), gradient_penalty)
    assert watched.summary() == []


def test_lstm_with_clipping_and_dropout_is_silent():
    lstm, head = nn.LSTM(4, 16, batch_first=True), nn.Linear(16, 1)
    model = nn.ModuleDict({"lstm": lstm, "drop": nn.Dropout(0.5), "head": head})

    def loss(m):
        x = torch.randn(8, 12, 4)
        return F.mse_loss(m["head"](m["drop"](m["lstm"](x)[0])), x.cumsum(1)[..., :1])

    assert train(model, torch.optim.RMSprop(model.parameters(), 1e-2), loss).summary() == []


def conditions(watched):
    return {condition for condition, _ in watched.summary()}


def test_too_large_a_learning_rate_runs_away():
    model = mlp(nn.Identity)
    watched = train(model, torch.optim.SGD(model.parameters(), 3.0), regression)
    assert {"loss_overflow", "weight_overflow", "gradient_overflow", "output_nan"} <= conditions(watched)


def test_log_of_zero_is_seen_at_once():
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    watched = train(
        model,
        torch.optim.SGD(model.parameters(), 0.1),
        lambda m: -m(torch.randn(16, 8)).log().mean(),
        steps=2,
    )
    assert watched.hits[0].condition == "loss_overflow"
    assert watched.hits[0].moment.step == 0


def test_dead_rectifier_and_the_weights_before_it():
    model = mlp()
    nn.init.constant_(model[0].bias, -100.0)
    watched = train(model, torch.optim.SGD(model.parameters(), 0.01), regression)
    assert ("dead(n=50) and not abs(loss) <= 1e-06", "1:out") in watched.summary()
    assert ("gradient_stuck", "0.weight:grad") in watched.summary()
    assert ("weight_stuck", "0.weight:value") in watched.summary()
    assert ("weight_stuck", "4.weight:value") not in watched.summary()


def test_a_detached_loss_gets_stuck():
    model, batch = mlp(), data()
    frozen = torch.zeros(1, requires_grad=True)
    watched = train(
        model,
        torch.optim.SGD(model.parameters(), 0.1),
        lambda m: F.mse_loss(m(batch[0]).detach() + 0 * frozen, batch[1]),
    )
    assert {"loss_stuck", "weight_stuck"} <= conditions(watched)
