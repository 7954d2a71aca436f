"""Trainings without a `torch.optim` optimizer: where their steps end, what is digested, and what is said about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import script

from launch import Foundry, Ran
from tensonde.diagnose.diagnose import diagnose

LOOP = """
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
    slope = torch.randn(4, 1)
    for step in range(@STEPS@):
        x = torch.randn(16, 4)
        @FIRST@
        loss = F.mse_loss(model(x), x @ slope)
        @CLEAR@
        loss.backward()
        @UPDATE@
    print([p.tolist() for p in model.parameters()])
"""
CLEAR = "model.zero_grad()"
UPDATE = "[p.data.add_(-0.01 * p.grad) for p in model.parameters()]"
NO_GRAD = """
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.01 * p.grad
"""
FOREACH = """
        with torch.no_grad():
            torch._foreach_add_(list(model.parameters()), [p.grad for p in model.parameters()], alpha=-0.01)
        for p in model.parameters():
            p.grad = None
"""
ZEROED = """
        for p in model.parameters():
            p.data = p.data - 0.01 * p.grad
            p.grad.zero_()
"""
ACCUMULATED = """
        if step % 4 == 3:
            for p in model.parameters():
                p.data.sub_(p.grad, alpha=0.01)
            model.zero_grad()
"""


def loop(update: str = UPDATE, *, clear: str = CLEAR, first: str = "pass", steps: int = 24) -> str:
    given = {"@UPDATE@": update.strip(), "@CLEAR@": clear, "@FIRST@": first, "@STEPS@": str(steps)}
    text = LOOP
    for name, value in given.items():
        text = text.replace(name, value)
    return text


@pytest.fixture
def run(foundry: Foundry, tmp_path: Path):
    def run(body: str, **options: object) -> Ran:
        bare = foundry.bare(script(body), tmp_path)
        done = foundry.watched(script(body), tmp_path, **options)  # type: ignore[arg-type]
        assert (bare.code, done.code, done.out, done.err) == (0, 0, bare.out, "")
        assert done.session["failures"] == {}
        return done

    return run


def rules(ran: Ran) -> list[str]:
    return [finding.rule for finding in diagnose(ran.recording) if finding.severity != "info"]


@pytest.mark.parametrize("budget", [0.05, None, 0])
@pytest.mark.parametrize(("clear", "update"), [(CLEAR, UPDATE), (CLEAR, NO_GRAD), ("pass", FOREACH), ("pass", ZEROED)])
def test_each_update_is_a_step(run, clear: str, update: str, budget: float | None) -> None:
    ran = run(loop(update, clear=clear), budget=budget, watch=[("**:update", "norm > 1e9")])
    assert ran.session["steps"] == 24
    assert [row["step"] for row in ran.at("0.weight:grad")] == list(range(24))
    assert [row["step"] for row in ran.at("0.weight:value")] == list(range(23))
    assert [row["step"] for row in ran.at("0.weight:update")] == list(range(23))
    assert all(row["norm"] > 0 for row in ran.at("0.weight:update"))
    assert rules(ran) == []


def test_parameters_that_are_replaced_are_a_step_each(run) -> None:
    replace = """
        for layer in (model[0], model[4]):
            layer.weight = nn.Parameter(layer.weight.detach() - 0.01 * layer.weight.grad)
            layer.bias = nn.Parameter(layer.bias.detach() - 0.01 * layer.bias.grad)
        for p in model[1].parameters():
            p.data -= 0.01 * p.grad
    """
    ran = run(loop(replace.strip(), clear=CLEAR))
    assert ran.session["steps"] == 24
    assert rules(ran) == []


SHAPES_FIRST = """
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(1, 4, device="meta"))

        def forward(self, x):
            return F.linear(x, self.weight)

    model = nn.Sequential(Layer())
    model(torch.empty(2, 4, device="meta"))
    model[0].weight = nn.Parameter(torch.full((1, 4), 0.1))
    for step in range(12):
        x = torch.randn(16, 4)
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
        model.zero_grad()
        loss.backward()
        model[0].weight.data -= 0.05 * model[0].weight.grad
"""


def test_parameters_that_come_after_a_first_call_without_values_are_watched(run) -> None:
    ran = run(SHAPES_FIRST, budget=None)
    assert [row["step"] for row in ran.at("0.weight:grad")] == list(range(12))
    assert [row["step"] for row in ran.at("0.weight:value")] == list(range(11))
    assert not ran.session["coverage"]["not_watched"]


def test_micro_batches_are_one_step(run) -> None:
    ran = run(loop(ACCUMULATED, clear="pass"))
    assert ran.session["steps"] == 6
    assert [row["step"] for row in ran.at("0.weight:value")] == [0, 1, 2, 3, 4]
    assert rules(ran) == []


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        ("trained-in-eval-mode", loop(first="model.eval() if step > 5 else None")),
        ("gradients-never-cleared", loop(clear="pass")),
        ("nothing-updates-parameters", loop("pass")),
        ("nothing-updates-parameters", loop("[p.data.add_(-0.0 * p.grad) for p in model.parameters()]")),
    ],
)
def test_what_is_said_of_optimizers_is_said_here(run, rule: str, body: str) -> None:
    assert rules(run(body)) == [rule]


HEALTHY = {
    "only gradients of inputs": """
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        for _ in range(30):
            x = torch.randn(16, 4, requires_grad=True)
            model.zero_grad(); model(x).sum().backward()
    """,
    "no modules": """
        a, b = torch.randn(4, 8, requires_grad=True), torch.randn(8, 1, requires_grad=True)
        for _ in range(30):
            x = torch.randn(16, 4)
            (torch.tanh(x @ a) @ b - x.sum(1, keepdim=True)).square().mean().backward()
            with torch.no_grad():
                for p in (a, b):
                    p -= 0.01 * p.grad
                    p.grad.zero_()
    """,
    "autograd.grad": """
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        for _ in range(30):
            found = torch.autograd.grad(model(torch.randn(16, 4)).square().mean(), list(model.parameters()))
            with torch.no_grad():
                for p, g in zip(model.parameters(), found):
                    p -= 0.01 * g
    """,
    "torch.func": """
        from torch.func import functional_call, grad
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        held = {k: p.detach() for k, p in model.named_parameters()}
        loss = lambda held, x: functional_call(model, held, x).square().mean()
        for _ in range(30):
            found = grad(loss)(held, torch.randn(16, 4))
            held = {k: p - 0.01 * found[k] for k, p in held.items()}
    """,
    "inner loops": """
        from torch.func import functional_call
        model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
        for _ in range(30):
            model.zero_grad()
            for task in range(2):
                held, x = dict(model.named_parameters()), torch.randn(8, 1)
                for _ in range(2):
                    loss = F.mse_loss(functional_call(model, held, x), x * task)
                    found = torch.autograd.grad(loss, list(held.values()), create_graph=True)
                    held = {k: p - 0.1 * g for (k, p), g in zip(held.items(), found)}
                F.mse_loss(functional_call(model, held, x), x * task).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.01 * p.grad
    """,
    "a language model that is evaluated": """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.cell, self.out = nn.Embedding(20, 8), nn.LSTM(8, 8), nn.Linear(8, 20)
                self.drop = nn.Dropout(0.2)
            def forward(self, x, hidden):
                y, hidden = self.cell(self.drop(self.embed(x)), hidden)
                return self.out(self.drop(y)).view(-1, 20), hidden
        model, data = Model(), torch.randint(0, 20, (300, 4))
        for epoch in range(2):
            for training in (True, False):
                model.train(training)
                hidden = torch.zeros(1, 4, 8), torch.zeros(1, 4, 8)
                with torch.set_grad_enabled(training):
                    for i in range(0, 200, 10):
                        hidden = tuple(h.detach() for h in hidden)
                        model.zero_grad()
                        out, hidden = model(data[i : i + 10], hidden)
                        loss = F.cross_entropy(out, data[i + 1 : i + 11].view(-1))
                        if training:
                            loss.backward()
                            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
                            for p in model.parameters():
                                p.data.add_(p.grad, alpha=-1.0)
    """,
}


@pytest.mark.parametrize("budget", [0.05, 0])
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_ones_are_left_alone(run, name: str, budget: float) -> None:
    assert rules(run(HEALTHY[name], budget=budget)) == []
