"""Updates that leave the numbers under finite gradients: an optimizer written by hand, L-BFGS without a line search."""

from __future__ import annotations

from pathlib import Path

from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose
from tensonde.model.finding import Finding

ADAM = """
    class Own(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {{"lr": lr}})
        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if not state:
                        state["k"], state["m"] = {begin}, torch.zeros_like(p)
                    state["m"].lerp_(p.grad, 0.1)
                    correction = 1 - 0.9 ** state["k"]
                    p.sub_(state["m"].div(correction), alpha=group["lr"])  # HERE
                    state["k"] += 1
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    train(model, Own(model.parameters(), 0.05), 12, size=16, loss=nn.MSELoss(), target=x)
"""

ROOT = """
    class Own(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})
        @torch.no_grad()
        def step(self):
            for p in self.param_groups[0]["params"]:
                share = p.numel() / 100
                p.sub_(0.01 * share * p.grad / (p.grad ** 2).sqrt())  # HERE
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
    train(model, Own(model.parameters(), 0.05), 12, size=16, loss=nn.MSELoss(), target=x)
"""

LBFGS = """
    model = nn.Sequential(nn.Linear(5, 32), nn.Softplus(), nn.Linear(32, 32), nn.Softplus(), nn.Linear(32, 1))
    X = torch.randn(400, 5)
    Y = X[:, :1] * X[:, 1:2] + torch.sin(X[:, 2:3])
    optimizer = torch.optim.LBFGS(model.parameters(), lr={lr}, max_iter=10{search})  # HERE
    for step in range(12):
        picked = torch.randperm(400)[:64]
        def closure():
            optimizer.zero_grad()
            loss = (model(X[picked]) - Y[picked]).square().mean()
            loss.backward()
            return loss
        optimizer.step(closure)
"""


def told(foundry: Foundry, script: str, tmp_path: Path) -> list[Finding]:
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    assert ran.session.get("failures", {}) == {}
    return diagnose(ran.recording)


def test_a_bias_correction_of_step_0_is_named(foundry: Foundry, tmp_path: Path) -> None:
    script = training(ADAM.format(begin=0))
    first = told(foundry, script, tmp_path)[0]
    assert first.rule == "nan-in-optimizer"
    assert first.source is not None
    assert first.source.line == marked(script)
    assert "1 - beta ** t" in first.advice


def test_one_that_counts_from_1_is_well(foundry: Foundry, tmp_path: Path) -> None:
    found = told(foundry, training(ADAM.format(begin=1)), tmp_path)
    assert [f for f in found if f.severity == "error"] == []


def test_a_root_without_eps_is_named(foundry: Foundry, tmp_path: Path) -> None:
    script = training(ROOT)
    first = told(foundry, script, tmp_path)[0]
    assert first.rule == "nan-in-optimizer"
    assert first.source is not None
    assert first.source.line == marked(script)


def test_lbfgs_that_runs_away_is_named(foundry: Foundry, tmp_path: Path) -> None:
    script = training(LBFGS.format(lr=3.0, search=""))
    first = told(foundry, script, tmp_path)[0]
    assert first.rule == "lbfgs-without-line-search", first
    assert first.source is not None
    assert first.source.line == marked(script)


def test_lbfgs_that_stays_is_well(foundry: Foundry, tmp_path: Path) -> None:
    for lr, search in ((0.05, ""), (1.0, ', line_search_fn="strong_wolfe"')):
        folder = tmp_path / str(lr)
        folder.mkdir()
        found = told(foundry, training(LBFGS.format(lr=lr, search=search)), folder)
        assert "lbfgs-without-line-search" not in {f.rule for f in found}
