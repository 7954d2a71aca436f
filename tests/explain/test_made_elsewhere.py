"""Exceptions whose cause was made on another line than the one that raises: that line is named, and only where the
values prove it. `# HERE` marks it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from test_exceptions import HEAD, findings, marked

from launch import Foundry

CASES: dict[str, tuple[str, str]] = {
    "scale of a distribution": ("distribution-parameter", """
        from torch.distributions import Normal
        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                self.loc, self.width = nn.Linear(4, 2), nn.Linear(4, 2)
            def forward(self, x):
                width = self.width(x)  # HERE
                return {"loc": self.loc(x)}, width
        model = Head()
        def likelihood(given, y):
            _, scale = given
            return -Normal(0.0, scale=scale.squeeze(-1)).log_prob(y).mean()
        likelihood(model(torch.randn(8, 4)), torch.randn(8, 2)).backward()
    """),
    "probabilities that are scores": ("distribution-parameter", """
        from torch.distributions import Categorical
        class Policy:
            def __init__(self):
                self.net = nn.Linear(4, 3)
            def choose(self, state):
                probs = self.net(state)  # HERE
                return Categorical(probs).sample()
        Policy().choose(torch.randn(8, 4))
    """),
    "multinomial of a Sequential": ("sampling-of-raw-scores", """
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        for step in range(3):
            scores = model(torch.randn(16, 4))  # HERE
            weights = scores.detach()
            picked = weights.multinomial(1)
    """),
    "covariance of too few samples": ("matrix-not-positive-definite", """
        def covariance(x):
            x = x - x.mean(0)
            return x.T @ x / len(x)  # HERE
        model = nn.Linear(4, 16)
        factor = torch.linalg.cholesky(covariance(model(torch.randn(8, 4))))
    """),
    "class kept as criterion": ("class-called-as-function", """
        model, criterion = nn.Linear(4, 2), nn.MSELoss  # HERE
        loss = criterion(model(torch.randn(8, 4)), torch.randn(8, 2))
    """),
    "class passed to a trainer": ("class-called-as-function", """
        class Trainer:
            def __init__(self, model, loss_fn):
                self.model, self.loss_fn = model, loss_fn
            def step(self, x, y):
                prediction = self.model(x)
                return self.loss_fn(prediction, y)
        trainer = Trainer(nn.Linear(4, 2), nn.MSELoss)  # HERE
        trainer.step(torch.randn(8, 4), torch.randn(8, 2)).backward()
    """),
    "layer built from a tensor": ("class-called-as-function", """
        head, tail = nn.Linear(4, 4), nn.Linear(4, 1)
        hidden = head(torch.randn(8, 4))
        hidden = nn.ReLU(hidden)  # HERE
        tail(hidden).mean().backward()
    """),
    "moved attribute in an optimizer": ("optimizer-non-leaf", """
        class Field:
            def __init__(self):
                self.free = torch.zeros(3, requires_grad=True)
                self.grid = torch.randn(3, requires_grad=True).double()  # HERE
        field = Field()
        torch.optim.SGD([{"params": [field.free]}, {"params": [field.grid]}], lr=0.1)
    """),
    "written after expand": ("shared-memory-written", """
        row = torch.zeros(1, 4)
        mask = row.expand(3, 4)  # HERE
        nn.Linear(4, 1)(mask)
        mask += 1.0
    """),
    "channels turned round": ("negative-strides", """
        class Images(Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, k):
                image = np.random.rand(3, 8, 8)[::-1]  # HERE
                if k < 0:
                    image = image / 255
                return torch.from_numpy(image)
        for x in DataLoader(Images(), batch_size=2):
            nn.Conv2d(3, 4, 3)(x.float())
    """),
    "flip among transforms, in a worker": ("negative-strides", """
        def mirrored(image):
            return np.flip(image, 1)  # HERE
        class Images(Dataset):
            transforms = [lambda image: image[::-1].copy(), mirrored]
            def __len__(self):
                return 4
            def __getitem__(self, k):
                image = np.ones((3, 8))
                for transform in self.transforms:
                    image = transform(image)
                return torch.as_tensor(image)
        nn.Linear(8, 1)(torch.randn(2, 8))
        for x in DataLoader(Images(), batch_size=2, num_workers=1):
            pass
    """),
    "parameter of an expanded start": ("shared-memory-written", """
        class Tokens(nn.Module):
            def __init__(self, count):
                super().__init__()
                start = torch.randn(1, 4).expand(count, -1)  # HERE
                self.tokens = nn.Parameter(start)
            def forward(self, x):
                return x + self.tokens
        model = Tokens(3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(8, 3, 4)).square().mean().backward()
        optimizer.step()
    """),
    "model without brackets": ("class-called-as-function", """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 1)
        nn.Linear(4, 1)(torch.randn(2, 4)).mean().backward()
        model = Net  # HERE
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    """),
    "activation kept by a hook": ("activation-kept-on-module", """
        import copy
        def keep(module, given, out):
            module.kept = out  # HERE
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        model[0].register_forward_hook(keep)
        model(torch.randn(8, 4)).mean().backward()
        copy.deepcopy(model)
    """),
    "variance on a diagonal": ("distribution-parameter", """
        from torch.distributions import MultivariateNormal
        head = nn.Linear(4, 3)
        variance = head(torch.randn(8, 4))  # HERE
        MultivariateNormal(torch.zeros(3), torch.diag_embed(variance))
    """),
    "activations in a list": ("activation-kept-on-module", """
        import copy
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc, self.seen = nn.Linear(4, 4), []
            def forward(self, x):
                h = self.fc(x)
                self.seen.append(h)  # HERE
                return h
        model = nn.Sequential(Net(), nn.Linear(4, 1))
        model(torch.randn(8, 4)).mean().backward()
        copy.deepcopy(model)
    """),
    "layers dropped by Python's random": ("checkpoint-recompute", """
        import random
        from torch.utils.checkpoint import checkpoint
        random.seed(3)
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 4)
            def forward(self, x):
                if random.random() < 0.5:  # HERE
                    return torch.tanh(self.fc(x))
                return self.fc(x)
        block = Block()
        for step in range(20):
            h = checkpoint(lambda x: block(x), torch.randn(8, 4), use_reentrant=False)
            h.sum().backward()
    """),
    "float16 by to()": ("half-weights-with-scaler", """
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        model.to(torch.float16)  # HERE
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
        scaler.scale(model(torch.randn(8, 4).half()).float().mean()).backward()
        scaler.step(optimizer)
    """),
    "unpacked beside labels": ("unpacked-too-short", """
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
        class Tagger(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn, self.out = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 1)
            def forward(self, x, lengths):
                packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
                h, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)  # HERE
                return self.out(h)
        model = Tagger()
        tags = model(torch.randn(4, 9, 3), torch.tensor([7, 3, 5, 6]))
        loss = F.mse_loss(tags, torch.randn(4, 9, 1))
    """),
}  # fmt: skip

SILENT: dict[str, tuple[str, str]] = {
    "a NaN scale began elsewhere": ("distribution-parameter", """
        from torch.distributions import Normal
        scale = nn.Linear(4, 2)(torch.full((8, 4), float("nan"))).exp()
        Normal(0.0, scale)
    """),
    "rows that do not fit are not the unpacking": ("unpacked-too-short", """
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
        x, lengths = torch.randn(4, 9, 3), torch.tensor([7, 3, 5, 6])
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(nn.GRU(3, 4, batch_first=True)(packed)[0], batch_first=True)
        h.sum(1) + torch.randn(5, 4)
    """),
    "a module of the user's may be built from tensors": ("class-called-as-function", """
        class Prototypes(nn.Module):
            def __init__(self, centres):
                super().__init__()
                if centres:
                    self.centres = nn.Parameter(centres)
        nn.Linear(4, 1)(torch.randn(2, 4)).mean().backward()
        Prototypes(torch.randn(3, 4))
    """),
    "a factory of layers is given the wrong numbers": ("class-called-as-function", """
        class Block(nn.Module):
            def __init__(self, width, depth):
                super().__init__()
        def build(block):
            return block(4)
        nn.Linear(4, 1)(torch.randn(2, 4)).mean().backward()
        build(Block)
    """),
    "a list turned round is no image": ("negative-strides", """
        widths = [1, 2, 3][::-1]
        nn.Linear(4, 1)(torch.randn(2, 4)).mean().backward()
        view = np.lib.stride_tricks.as_strided(np.ones(4)[3:], (4,), (-8,))
        torch.from_numpy(view.reshape(2, 2))
    """),
    "a checkpointed forward without a decision": ("nothing", """
        from torch.utils.checkpoint import checkpoint
        fc = nn.Linear(4, 4)
        calls = []
        def run(x):
            calls.append(1)
            return torch.tanh(fc(x)) if len(calls) % 2 else fc(x)
        checkpoint(run, torch.randn(8, 4), use_reentrant=False).sum().backward()
    """),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_line_that_made_it_is_named(name: str, foundry: Foundry, tmp_path: Path) -> None:
    rule, text = CASES[name]
    script = HEAD + textwrap.dedent(text)
    found = findings(foundry, script, tmp_path)
    first = found[0]
    assert first.rule == rule, [(f.rule, f.title) for f in found]
    assert first.source is not None
    assert first.source.line == marked(script), (str(first.source), first.source.code, first.title)
    assert first.advice
    assert found[-1].rule == "exception"


@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_claimed_without_proof(name: str, foundry: Foundry, tmp_path: Path) -> None:
    rule, text = SILENT[name]
    found = findings(foundry, HEAD + textwrap.dedent(text), tmp_path)
    assert rule not in {f.rule for f in found}, [(f.rule, f.title) for f in found]
    assert all("checkpointed forward of" not in f.title for f in found)
