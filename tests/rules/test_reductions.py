"""A divergence that is summed beside a reconstruction that is averaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

VAE = """
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Linear(8, 8), nn.Linear(4, 8)
        def forward(self, x):
            self.mean, self.width = self.encoder(x).chunk(2, -1)
            return self.decoder(self.mean + self.width.exp() * torch.randn_like(self.mean))
    model = Noisy()
    def loss(out, x):
        each = 2 * model.width + 1 - model.mean.pow(2) - (2 * model.width).exp()
        {terms}
    train(model, torch.optim.SGD(model.parameters(), lr=1e-4), target=x, loss=loss)
"""

BUGS = {
    "mean and sum": """rec = F.mse_loss(out, x)  # HERE
        return rec + -0.5 * torch.sum(each)""",
    "a mean of one's own, and a distribution": """q = torch.distributions.Normal(model.mean, model.width.exp())
        kl = torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 1.0)).sum(1).sum()
        return ((out - x) ** 2).mean() + kl  # HERE""",
}
NEAR_MISSES = {
    "both summed": "return F.mse_loss(out, x, reduction='sum') - 0.5 * each.sum()",
    "summed over features, averaged over the batch": "return F.mse_loss(out, x) - 0.5 * each.sum(1).mean()",
    "divided by the batch": "return F.mse_loss(out, x) - 0.5 * each.sum() / len(x)",
    "weighted": "return F.mse_loss(out, x) - 1e-3 * each.sum()",
    "the average weighted": "return 1000 * F.mse_loss(out, x) - 0.5 * each.sum()",
    "weights summed": "return F.mse_loss(out, x) + sum((p**2).sum() for p in model.parameters())",
}


@pytest.mark.parametrize("name", BUGS)
def test_the_average_is_named(foundry: Foundry, tmp_path: Path, name: str) -> None:
    script = training(VAE.replace("{terms}", BUGS[name]))
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    first = diagnose(ran.recording)[0]
    assert first.rule == "terms-reduced-differently"
    assert first.source is not None
    assert first.source.line == marked(script)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_terms_of_one_kind_are_left_alone(foundry: Foundry, tmp_path: Path, name: str) -> None:
    ran = foundry.watched(training(VAE.replace("{terms}", NEAR_MISSES[name])), tmp_path)
    assert ran.code == 0, ran.err
    assert [finding.title for finding in diagnose(ran.recording) if finding.severity != "info"] == []
