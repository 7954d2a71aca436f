"""What the program does around the model: hooks, samplers, hyperparameters, averages, data sets. Defects are named by
their line; near misses are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

DATA = """
    from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, WeightedRandomSampler
    def epochs(loader, passes=3):
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(passes):
            for given, wanted in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(given), wanted).backward()
                optimizer.step()
    class Rows(Dataset):
        def __init__(self):
            self.rows, self.labels, self.visits = x.clone() * 3 + 5, y, torch.zeros(256)
        def __len__(self):
            return 256
"""
AVERAGE = """
    def norms():
        return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    def evaluate(model):
        model.eval()
        with torch.no_grad():
            model(x)
    model = norms()
    average = copy.deepcopy(model)
    def fit(update):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            model.train()
            train(model, optimizer, steps=12, after=update)
            evaluate(model)
            evaluate(average)
"""
BUGS = {
    "a hook in every step": ("hooks-pile-up", """
        model, kept = Net(), []
        def look(module, given, out):
            kept.append(out.detach())
        def step(given):
            model.encoder.register_forward_hook(look)  # HERE
            return model(given)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            F.cross_entropy(step(x), y).backward()
            optimizer.step()
    """),
    "a weight for each class": ("sampler-weights-too-few", DATA + """
    sampler = WeightedRandomSampler(torch.tensor([1.0, 2.0, 3.0]), 256)  # HERE
    epochs(DataLoader(TensorDataset(x, y), batch_size=32, sampler=sampler))
    """),
    "a rate that is set in the defaults": ("hyperparameter-set-to-no-effect", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(3):
            train(model, optimizer)
            optimizer.defaults["lr"] = 0.1 / (epoch + 2)  # HERE
    """),
    "a rate that is set on the optimizer": ("hyperparameter-set-to-no-effect", """
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for epoch in range(3):
            train(model, optimizer)
            optimizer.lr = 0.001  # HERE
    """),
    "an average without buffers": ("statistics-never-updated", AVERAGE + """
    @torch.no_grad()
    def update():
        for mean, now in zip(average.parameters(), model.parameters()):  # HERE
            mean.data.mul_(0.9).add_(now.data, alpha=0.1)
    fit(update)
    """),
    "a data set that normalises in place": ("dataset-rewrites-its-data", DATA + """
    class Normalised(Rows):
        def __getitem__(self, i):
            row, label = self.rows[i], self.labels[i]
            row -= 5  # HERE
            row /= 3
            return row, label
    epochs(DataLoader(Subset(Normalised(), range(200)), batch_size=40))
    """),
}  # fmt: skip
NEAR_MISSES = {
    "hooks that are removed, and hooks on many modules": """
        model = Net()
        for module in model.modules():
            module.register_forward_hook(lambda *given: None)
        def step(given):
            handle = model.encoder.register_forward_hook(lambda *given: None)
            out = model(given)
            handle.remove()
            return out
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            F.cross_entropy(step(x), y).backward()
            optimizer.step()
    """,
    "a weight for each sample": DATA + """
    sampler = WeightedRandomSampler(torch.tensor([1.0, 2.0, 3.0])[y], 256)
    epochs(DataLoader(TensorDataset(x, y), batch_size=32, sampler=sampler))
    """,
    "a rate that is set in groups and defaults": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(3):
            train(model, optimizer)
            optimizer.defaults["lr"] = optimizer.param_groups[0]["lr"] = 0.1 / (epoch + 2)
    """,
    "a rate for a group that is added": """
        model = Net()
        optimizer = torch.optim.SGD(model.encoder.parameters(), lr=0.1)
        optimizer.defaults["lr"] = 0.01
        optimizer.add_param_group({"params": model.head.parameters()})
        train(model, optimizer)
    """,
    "an average with buffers": AVERAGE + """
    @torch.no_grad()
    def update():
        for mean, now in zip(average.parameters(), model.parameters()):
            mean.lerp_(now, 0.1)
        for mean, now in zip(average.buffers(), model.buffers()):
            mean.copy_(now)
    fit(update)
    """,
    "a target that stays random": AVERAGE + """
    fit(lambda: None)
    """,
    "a data set that normalises a copy, counts visits and clamps": DATA + """
    class Normalised(Rows):
        def __getitem__(self, i):
            row, label = self.rows[i], self.labels[i]
            row.clamp_(-9, 9)
            self.visits[i] += 1
            row = row.clone()
            row -= 5
            return row, label
    epochs(DataLoader(Normalised(), batch_size=32))
    """,
    "a data set that fills a cache": DATA + """
    class Cached(Rows):
        def __getitem__(self, i):
            self.rows[i] = x[i] * 2
            return self.rows[i], self.labels[i]
    epochs(DataLoader(Cached(), batch_size=32))
    """,
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS)
def test_the_line_is_named(foundry: Foundry, tmp_path: Path, name: str) -> None:
    rule, body = BUGS[name]
    script = training(body)
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    found = [finding for finding in diagnose(ran.recording) if finding.severity != "info"]
    assert [finding.rule for finding in found][:1] == [rule]
    assert found[0].source is not None
    assert found[0].source.line == marked(script)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_it_is_left_alone(foundry: Foundry, tmp_path: Path, name: str) -> None:
    ran = foundry.watched(training(NEAR_MISSES[name]), tmp_path)
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    assert [finding.title for finding in diagnose(ran.recording) if finding.severity != "info"] == []
