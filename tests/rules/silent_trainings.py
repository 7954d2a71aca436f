"""Tiny trainings with one defect each, beside near misses that are right. `# HERE` marks the line to be named."""

from __future__ import annotations

import textwrap

HEADER = """
import copy, math
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
x = torch.randn(256, 8)
y = (x[:, 0] + x[:, 1] > 0).long() + (x[:, 2] > 0.5).long()
t = x[:, :1] * 2 + x[:, 1:2]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.encoder(x))


def train(model, optimizer, steps=12, size=16, loss=F.cross_entropy, target=None, after=lambda: None):
    target = y if target is None else target
    for step in range(steps):
        index = torch.randint(0, 256, (size,))
        optimizer.zero_grad()
        loss(model(x[index]), target[index]).backward()
        optimizer.step()
        after()
"""


def training(body: str) -> str:
    return HEADER + textwrap.dedent(body)


def marked(script: str) -> int | None:
    """The number of the line with the mark."""
    return next((k for k, line in enumerate(script.splitlines(), 1) if "# HERE" in line), None)


BUGS: dict[str, tuple[str, str]] = {
    "target loaded from itself": ("state-loaded-into-itself", """
        model, target = Net(), Net()
        def sync():
            target.load_state_dict(target.state_dict())  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), after=sync)
    """),
    "best state without a copy": ("state-loaded-into-itself", """
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        best = model.state_dict()  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        model.load_state_dict(best)
    """),
    "one class of sorted data": ("labels-constant", """
        from torch.utils.data import DataLoader, Subset, TensorDataset
        order = y.argsort()
        part = Subset(TensorDataset(x[order], y[order]), range(60))  # HERE
        loader = DataLoader(part, batch_size=6, shuffle=True)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for a, b in [*loader, *loader]:
            optimizer.zero_grad()
            F.cross_entropy(model(a), b).backward()
            optimizer.step()
    """),
    "argmin": ("no-gradient", """
        class Codes(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.codes, self.head = nn.Linear(8, 4), nn.Embedding(6, 4), nn.Linear(4, 3)
            def forward(self, x):
                nearest = torch.cdist(self.encoder(x), self.codes.weight).argmin(1)  # HERE
                return self.head(self.codes(nearest))
        model = Codes()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "another model": ("optimizer-holds-old-parameters", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # HERE
        model = copy.deepcopy(model)
        train(model, optimizer)
    """),
    "optimizer in the loop": ("optimizer-made-every-step", """
        model = Net()
        for _ in range(15):
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)  # HERE
            train(model, optimizer, 1)
    """),
    "optimizer of a function in the loop": ("optimizer-made-every-step", """
        model = Net()
        first = torch.optim.Adam(model.parameters(), lr=0.01)
        def fresh():
            return torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(15):
            optimizer = fresh()  # HERE
            train(model, optimizer, 1)
    """),
    "mask the wrong way round": ("padding-mask-inverted", """
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(9, 8, padding_idx=0)
                self.mix = nn.MultiheadAttention(8, 2, batch_first=True)
                self.head = nn.Linear(8, 3)
            def forward(self, ids):
                hidden = self.embed(ids)
                real = ids != 0  # HERE
                return self.head(self.mix(hidden, hidden, hidden, key_padding_mask=real)[0].mean(1))
        ids = torch.randint(1, 9, (256, 6))
        ids[:, 4:] = 0
        x = ids
        model = Words()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "padding in the loss": ("padding-in-loss", """
        ids = torch.randint(1, 9, (256, 6))
        ids[:, 2:] = 0
        model = nn.Sequential(nn.Embedding(9, 8, padding_idx=0), nn.Linear(8, 9))
        x, y = ids[:, 0], ids
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=lambda out, y: F.cross_entropy(  # HERE
            out.repeat_interleave(6, 0), y.flatten()))
    """),
    "maximised": ("loss-maximised", """
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1, maximize=True), 30)  # HERE
    """),
    "negative loss": ("loss-maximised", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer, 30, loss=lambda out, y: -F.cross_entropy(out, y))  # HERE
    """),
    "sample of data": ("sample-without-gradient", """
        class Noisy(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.decoder = nn.Linear(8, 8), nn.Linear(4, 8)
            def forward(self, x):
                self.mean, self.width = self.encoder(x).chunk(2, -1)
                z = self.mean.data + self.width.exp().data * torch.randn_like(self.mean)  # HERE
                return self.decoder(z)
        model = Noisy()
        train(model, torch.optim.SGD(model.parameters(), lr=0.01), target=x,
              loss=lambda out, x: F.mse_loss(out, x) + (model.mean**2 + model.width**2).mean())
    """),
    "sample for rsample": ("sample-without-gradient", """
        class Noisy(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.decoder = nn.Linear(8, 8), nn.Linear(4, 8)
            def forward(self, x):
                mean, width = self.encoder(x).chunk(2, -1)
                self.drawn = torch.distributions.Normal(mean, width.exp())
                return self.decoder(self.drawn.sample())  # HERE
        model = Noisy()
        train(model, torch.optim.SGD(model.parameters(), lr=0.01), target=x, loss=lambda out, x: F.mse_loss(out, x)
              + torch.distributions.kl_divergence(model.drawn, torch.distributions.Normal(0.0, 1.0)).mean())
    """),
    "norm without momentum": ("batch-norm-momentum", """
        norm = nn.BatchNorm1d(16, momentum=0)  # HERE
        model = nn.Sequential(nn.Linear(8, 16), norm, nn.ReLU(), nn.Linear(16, 3))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        model.eval()
        with torch.no_grad():
            model(x)
    """),
    "normalised over the batch": ("normalised-over-batch", """
        class Pair(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two = nn.Linear(8, 6), nn.Linear(8, 6)
            def forward(self, x):
                one, two = self.one(x), F.normalize(self.two(x), dim=1)
                one = F.normalize(one, dim=0)  # HERE
                return one @ two.T / 0.1
        model = Pair()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=lambda out, _: F.cross_entropy(out, torch.arange(16)))
    """),
    "head only": ("parameter-not-in-optimizer", """
        model = Net()
        train(model, torch.optim.SGD(model.head.parameters(), lr=0.1))  # HERE
    """),
    "list": ("module-not-registered", """
        class Deep(Net):
            def __init__(self):
                super().__init__()
                self.more = [nn.Linear(16, 16), nn.Linear(16, 16)]  # HERE
            def forward(self, x):
                x = self.encoder(x)
                for layer in self.more:
                    x = x + layer(x)
                return self.head(x)
        model = Deep()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "dict": ("module-not-registered", """
        class Deep(Net):
            def __init__(self):
                super().__init__()
                self.more = {"a": nn.Linear(16, 16)}  # HERE
            def forward(self, x):
                return self.head(self.more["a"](self.encoder(x)))
        model = Deep()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "replaced": ("optimizer-holds-old-parameters", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # HERE
        model.head = nn.Linear(16, 3)
        train(model, optimizer)
    """),
    "made in forward": ("layer-made-in-forward", """
        class Fresh(Net):
            def forward(self, x):
                return self.head(nn.Linear(16, 16)(self.encoder(x)))  # HERE
        model = Fresh()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "made in forward, filled alike": ("layer-made-in-forward", """
        class Fresh(Net):
            def forward(self, x):
                between = nn.Linear(16, 16)  # HERE
                nn.init.eye_(between.weight)
                nn.init.zeros_(between.bias)
                return self.head(between(self.encoder(x)))
        model = Fresh()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "never steps": ("nothing-updates-parameters", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # HERE
        for _ in range(15):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
    """),
    "lr 0": ("learning-rate-zero", """
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.0))  # HERE
    """),
    "decay": ("weight-decay-dominates", """
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=5e-4, weight_decay=0.9), 60)  # HERE
    """),
    "detach": ("no-gradient", """
        class Cut(Net):
            def forward(self, x):
                return self.head(self.encoder(x).detach())  # HERE
        model = Cut()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "data": ("no-gradient", """
        class Cut(Net):
            def forward(self, x):
                hidden = self.encoder(x)
                hidden = hidden.data  # HERE
                return self.head(hidden)
        model = Cut()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "no grad": ("no-gradient", """
        class Cut(Net):
            def forward(self, x):
                with torch.no_grad():  # HERE
                    hidden = self.encoder(x)
                return self.head(hidden)
        model = Cut()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "reentrant": ("no-gradient", """
        from torch.utils.checkpoint import checkpoint
        class Cut(Net):
            def forward(self, x):
                return self.head(checkpoint(self.encoder, x, use_reentrant=True))  # HERE
        model = Cut()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "cleared in between": ("gradients-discarded", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(24):
            model.zero_grad()  # HERE
            F.cross_entropy(model(x[step * 8 : step * 8 + 8]), y[step * 8 : step * 8 + 8]).backward()
            if step % 4 == 3:
                optimizer.step()
    """),
    "never cleared": ("gradients-never-cleared", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(12):
            F.cross_entropy(model(x), y).backward()  # HERE
            optimizer.step()
    """),
    "cleared before step": ("gradients-discarded", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(12):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.zero_grad()  # HERE
            optimizer.step()
    """),
    "dead output": ("gradient-all-zero", """
        class Dead(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(8, 1)
                nn.init.constant_(self.fc.bias, -20.0)  # HERE
                self.out = nn.ReLU()
            def forward(self, x):
                return self.out(self.fc(x))
        model = Dead()
        train(model, torch.optim.SGD(model.parameters(), lr=0.01), 20, loss=F.mse_loss, target=t + 3)
    """),
    "warm-up": ("learning-rate-never-reached", """
        warm = 5000  # HERE
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1e-4, 1.0, warm)
        train(model, optimizer, 30, after=schedule.step)
    """),
    "epochs as steps": ("learning-rate-collapses", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.1)
        for step in range(80):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            schedule.step()  # HERE
    """),
    "schedule first": ("scheduler-out-of-step", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
        for step in range(8):
            schedule.step()  # HERE
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """),
    "schedule forgotten": ("scheduler-out-of-step", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)  # HERE
        train(model, optimizer, 60)
    """),
    "schedule of the old": ("scheduler-out-of-step", """
        model = Net()
        old = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(old, 0.9)  # HERE
        optimizer = torch.optim.Adam(model.parameters())
        train(model, optimizer, 12, after=schedule.step)
    """),
    "bfloat16": ("update-rounds-away", """
        model = Net().to(torch.bfloat16)  # HERE
        x = x.to(torch.bfloat16)
        train(model, torch.optim.SGD(model.parameters(), lr=1e-4), 12, size=64)
    """),
    "clip scaled": ("gradients-still-scaled", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        for _ in range(6):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # HERE
            scaler.step(optimizer)
            scaler.update()
    """),
    "step scaled": ("gradients-still-scaled", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for _ in range(6):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            optimizer.step()  # HERE
    """),
    "clip after": ("clip-without-effect", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(8):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # HERE
    """),
    "stays in eval": ("trained-in-eval-mode", """
        model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(4):
            train(model, optimizer, 6)
            model.eval()  # HERE
            with torch.no_grad():
                model(x)
    """),
    "evaluated in train": ("evaluated-in-train-mode", """
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(3):
            train(model, optimizer, 8)
            with torch.no_grad():  # HERE
                for k in range(4):
                    model(x[k * 64 : k * 64 + 64])
    """),
    "functional dropout": ("dropout-active-in-eval", """
        class Noisy(Net):
            def forward(self, x):
                return self.head(F.dropout(self.encoder(x), 0.3))  # HERE
        model = Noisy()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        model.eval()
        model(x)
    """),
    "attention dropout": ("dropout-active-in-eval", """
        class Noisy(Net):
            def forward(self, x):
                h = self.encoder(x)[:, None].expand(-1, 4, -1)
                h = F.scaled_dot_product_attention(h, h, h, dropout_p=0.2)  # HERE
                return self.head(h.mean(1))
        model = Noisy()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        model.eval()
        with torch.no_grad():
            model(x)
    """),
    "hidden dropout": ("dropout-active-in-eval", """
        class Noisy(Net):
            def __init__(self):
                super().__init__()
                self.drops = [nn.Dropout(0.3)]  # HERE
            def forward(self, x):
                return self.head(self.drops[0](self.encoder(x)))
        model = Noisy()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        model.eval()
        model(x)
    """),
    "sorted": ("data-not-shuffled", """
        from torch.utils.data import DataLoader, TensorDataset
        order = y.argsort()
        loader = DataLoader(TensorDataset(x[order], y[order]), batch_size=8)  # HERE
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for xb, yb in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    """),
    "one label": ("labels-constant", """
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), target=torch.zeros_like(y))
    """),
    "same input": ("inputs-constant", """
        x = x[:1].expand(256, 8)
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "one buffer for all samples": ("inputs-constant", """
        from torch.utils.data import DataLoader, Dataset
        class Rows(Dataset):
            def __init__(self):
                self.row = torch.zeros(8)
            def __len__(self):
                return 256
            def __getitem__(self, k):
                self.row.copy_(x[k])
                return self.row, y[k]  # HERE
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for a, b in DataLoader(Rows(), batch_size=16, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(a), b).backward()
            optimizer.step()
    """),
    "one buffer behind all that is kept": ("inputs-constant", """
        from torch.utils.data import DataLoader, Dataset, Subset
        class Rows(Dataset):
            def __init__(self):
                self.row = x[0].numpy().copy()
                self.kept = {k: (self.load(k), y[k]) for k in range(256)}
            def load(self, k):
                self.row[:] = x[k].numpy()
                return torch.from_numpy(self.row)  # HERE
            def __len__(self):
                return 256
            def __getitem__(self, k):
                return self.kept[k]
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for a, b in DataLoader(Subset(Rows(), range(200)), batch_size=16, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(a * 2), b).backward()
            optimizer.step()
    """),
    "same workers": ("workers-share-randomness", """
        import numpy as np
        from torch.utils.data import DataLoader, Dataset
        class Noisy(Dataset):
            def __init__(self):
                self.random = np.random.default_rng(0)  # HERE
            def __len__(self):
                return 64
            def __getitem__(self, k):
                return x[k] + torch.from_numpy(self.random.normal(size=8)).float(), y[k]
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for xb, yb in DataLoader(Noisy(), batch_size=8, num_workers=2):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    """),
    "same seed": ("workers-share-randomness", """
        import numpy as np
        from torch.utils.data import DataLoader, TensorDataset
        def seeded(worker):  # HERE
            np.random.seed(0)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for xb, yb in DataLoader(TensorDataset(x[:64], y[:64]), batch_size=8, num_workers=2, worker_init_fn=seeded):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    """),
    "batch of one": ("batch-norm-tiny-batch", """
        class Image(Net):
            def __init__(self):
                super().__init__()
                self.conv, self.norm = nn.Conv1d(1, 4, 3, padding=1), nn.BatchNorm1d(4)  # HERE
            def forward(self, x):
                return super().forward(self.norm(self.conv(x[:, None])).mean(1))
        model = Image()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), size=1)
    """),
    "constant": ("symmetric-initialisation", """
        model = Net()
        nn.init.constant_(model.encoder[0].weight, 0.1)  # HERE
        nn.init.constant_(model.head.weight, 0.1)
        nn.init.zeros_(model.encoder[0].bias)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "zero": ("symmetric-initialisation", """
        model = Net()
        for p in model.parameters():
            nn.init.zeros_(p)  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "saturated": ("activation-saturated", """
        x = x * 100 + 300
        model = nn.Sequential(nn.Linear(8, 16), nn.Sigmoid(), nn.Linear(16, 3))  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "summed in evaluation": ("graph-kept-alive", """
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        total = 0.0
        for k in range(12):
            total = total + F.cross_entropy(model(x), y)  # HERE
    """),
    "summed in every epoch": ("graph-kept-alive", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(5):
            total = 0
            for step in range(20):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                total += loss  # HERE
    """),
    "collected in training": ("graph-kept-alive", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        def run():
            losses = []
            for step in range(64):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss)  # HERE
        run()
    """),
    "softmax and cross-entropy": ("activation-before-logit-loss", """
        class Twice(Net):
            def forward(self, x):
                return torch.softmax(super().forward(x), dim=1)  # HERE
        model = Twice()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "softmax module": ("activation-before-logit-loss", """
        model = nn.Sequential(nn.Linear(8, 3), nn.Softmax(dim=-1))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=nn.CrossEntropyLoss())
    """),
    "sigmoid twice": ("activation-before-logit-loss", """
        model = nn.Sequential(nn.Linear(8, 1), nn.Sigmoid())
        wanted = (t > 0).float()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=nn.BCEWithLogitsLoss(), target=wanted)
    """),
    "nll of logits": ("log-probabilities-expected", """
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.01), loss=F.nll_loss)
    """),
    "relu on logits": ("activation-before-logit-loss", """
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3), nn.ReLU())
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "softmax over the batch": ("softmax-over-wrong-dimension", """
        class Wrong(Net):
            def forward(self, x):
                return F.log_softmax(super().forward(x), 0)  # HERE
        model = Wrong()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=F.nll_loss)
    """),
    "softmax over queries": ("softmax-over-wrong-dimension", """
        class Wrong(Net):
            def forward(self, x):
                h = self.encoder(x).view(-1, 4, 4)
                s = (h @ h.transpose(1, 2)).softmax(1)  # HERE
                return self.head((s @ h).flatten(1))
        model = Wrong()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "one class": ("normalised-over-one-value", """
        model = nn.Linear(8, 1)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), target=torch.zeros_like(y))
    """),
    "broadcast": ("loss-broadcasts", """
        model = nn.Linear(8, 1)
        train(model, torch.optim.SGD(model.parameters(), lr=0.01), loss=F.mse_loss, target=t[:, 0])
    """),
    "own broadcast": ("loss-broadcasts", """
        def own(a, b):
            return ((a - b) ** 2).mean()  # HERE
        model = nn.Linear(8, 1)
        train(model, torch.optim.SGD(model.parameters(), lr=0.01), loss=own, target=t[:, 0])
    """),
    "view for transpose": ("view-instead-of-transpose", """
        class Wrong(Net):
            def forward(self, x):
                h = x.view(-1, 2, 4)
                h = h.view(-1, 4, 2)  # HERE
                return self.head(self.encoder(h.flatten(1)))
        model = Wrong()
        train(model, torch.optim.SGD(model.parameters(), lr=0.01))
    """),
    "heads not moved": ("view-instead-of-transpose", """
        class Wrong(Net):
            def forward(self, x):
                h = self.encoder(x)[:, None].repeat(1, 5, 1)
                h = h.view(-1, 4, 5, 4)  # HERE
                return self.head(h.mean(2).flatten(1))
        model = Wrong()
        train(model, torch.optim.SGD(model.parameters(), lr=0.01))
    """),
    "batch for time": ("batch-and-time-exchanged", """
        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.GRU(2, 8)  # HERE
                self.head = nn.Linear(8, 3)
            def forward(self, x):
                return self.head(self.rnn(x.view(-1, 4, 2))[0][:, -1])
        model = Recurrent()
        train(model, torch.optim.SGD(model.parameters(), lr=0.01))
    """),
    "loss anew": ("loss-without-graph", """
        model = Net()
        def anew(a, b):
            return torch.tensor(F.cross_entropy(a, b).item(), requires_grad=True)  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.01), loss=anew)
    """),
    "loss of a loss anew": ("loss-without-graph", """
        model = Net()
        def weighted(a, b):
            scale = torch.tensor(0.5)
            value = F.cross_entropy(a, b)
            value = torch.tensor(value.tolist())  # HERE
            value.requires_grad = True
            return value
        train(model, torch.optim.SGD(model.parameters(), lr=0.01), loss=lambda a, b: weighted(a, b) * 2)
    """),
    "state of a compiled model": ("state-not-loaded", """
        model = Net()
        compiled = torch.compile(model, backend="eager")
        other = Net()
        other.load_state_dict(compiled.state_dict(), strict=False)  # HERE
        train(other, torch.optim.SGD(other.parameters(), lr=0.1))
    """),
    "state into a wrapped encoder": ("state-not-loaded", """
        model = Net()
        state = {key.replace("encoder", "encoder.module"): value for key, value in Net().state_dict().items()}
        model.load_state_dict(state, strict=False)  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "memory without values": ("memory-without-values", """
        with torch.device("meta"):
            model = Net()
        model.to_empty(device="cpu")  # HERE
        model.encoder[0].reset_parameters()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "state of the model around it": ("state-not-loaded", """
        model = Net()
        big = nn.ModuleDict({"net": Net(), "projector": nn.Linear(3, 2)})
        model.load_state_dict(big.state_dict(), strict=False)  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "loss of a number": ("loss-without-graph", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(12):
            value = F.cross_entropy(model(x), y).item()
            loss = torch.tensor(value, requires_grad=True)  # HERE
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """),
    "rounded": ("gradient-all-zero", """
        class Rounded(Net):
            def forward(self, x):
                return torch.round(self.head(self.encoder(x)))  # HERE
        model = Rounded()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 20)
    """),
    "two permutations": ("labels-out-of-step", """
        a, b = x, y
        a = a[torch.randperm(256)]
        b = b[torch.randperm(256)]  # HERE
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(40):
            index = torch.randint(0, 256, (16,))
            optimizer.zero_grad()
            F.cross_entropy(model(a[index]), b[index]).backward()
            optimizer.step()
    """),
    "two loaders": ("labels-out-of-step", """
        from torch.utils.data import DataLoader, TensorDataset
        inputs = DataLoader(TensorDataset(x), batch_size=16, shuffle=True)
        labels = DataLoader(TensorDataset(y), batch_size=16, shuffle=True)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            for (a,), (b,) in zip(inputs, labels):  # HERE
                optimizer.zero_grad()
                F.cross_entropy(model(a), b).backward()
                optimizer.step()
    """),
    "one iterator a step": ("same-batch-every-step", """
        from torch.utils.data import DataLoader, TensorDataset
        loader = DataLoader(TensorDataset(x, y), batch_size=16)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            a, b = next(iter(loader))  # HERE
            optimizer.zero_grad()
            F.cross_entropy(model(a), b).backward()
            optimizer.step()
    """),
    "loop past the loader": ("same-batch-every-step", """
        from torch.utils.data import DataLoader, TensorDataset
        loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        first = next(iter(loader))
        for a, b in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(first[0]), first[1]).backward()  # HERE
            optimizer.step()
    """),
    "tied by data": ("parameters-share-memory", """
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.into, self.out = nn.Linear(8, 8), nn.Linear(8, 8)
                self.last = nn.Linear(8, 3)
                self.out.weight.data = self.into.weight.data  # HERE
            def forward(self, x):
                return self.last(torch.tanh(self.out(torch.tanh(self.into(x)))))
        model = Tied()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "no parameter": ("tensor-not-registered", """
        class Shifted(Net):
            def __init__(self):
                super().__init__()
                self.shift = torch.zeros(3, requires_grad=True)  # HERE
            def forward(self, x):
                return super().forward(x) + self.shift
        model = Shifted()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "cosine by the batch": ("schedule-starts-over", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)
        train(model, optimizer, 60, after=lambda: schedule.step())  # HERE
    """),
    "one large column": ("inputs-not-normalised", """
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        wide = x * torch.tensor([1.0, 1, 1, 1, 1, 1, 1, 40000])
        optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
        for _ in range(12):
            index = torch.randint(0, 256, (16,))
            optimizer.zero_grad()
            F.l1_loss(model(wide[index]), t[index]).backward()  # HERE
            optimizer.step()
    """),
    "wide weights": ("activation-saturated", """
        class Wide(Net):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(8, 16)
                nn.init.normal_(self.inner.weight, std=10.0)  # HERE
            def forward(self, x):
                return self.head(torch.tanh(self.inner(x)))
        model = Wide()
        train(model, torch.optim.SGD([*model.inner.parameters(), *model.head.parameters()], lr=0.01))
    """),
    "evaluated with gradients in train": ("evaluated-in-train-mode", """
        model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(4):
            train(model, optimizer, 10)
            print((model(x).argmax(1) == y).float().mean().item())  # HERE
    """),
    "scheduled to nothing": ("learning-rate-zero", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step // 1000)  # HERE
        train(model, optimizer, 20, after=lambda: schedule.step())
    """),
    "float16 alone": ("float16-without-scaling", """
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
        for _ in range(12):
            with torch.autocast("cpu", dtype=torch.float16):
                out = model(x)
            optimizer.zero_grad()
            (F.cross_entropy(out.float(), y) * 1e-6).backward()  # HERE
            optimizer.step()
    """),
    "all skipped": ("scaler-skips-all", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100, backoff_factor=0.999)
        for _ in range(20):
            with torch.autocast("cpu", dtype=torch.float16):
                out = model(x)
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(out.float(), y)).backward()
            scaler.step(optimizer)
            scaler.update()
    """),
    "tiny clip": ("clip-limit-tiny", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(8):
            optimizer.zero_grad()
            (100 * F.cross_entropy(model(x), y)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)  # HERE
            optimizer.step()
    """),
    "keep for drop": ("dropout-rate-extreme", """
        model = nn.Sequential(
            nn.Linear(8, 64),
            nn.Dropout(0.95),  # HERE
            nn.Linear(64, 3))
        train(model, torch.optim.SGD(model.parameters(), lr=0.01))
    """),
    "momentum of others": ("batch-norm-momentum", """
        norm = nn.BatchNorm1d(16, momentum=0.99)  # HERE
        model = nn.Sequential(nn.Linear(8, 16), norm, nn.Linear(16, 3))
        train(model, torch.optim.SGD(model.parameters(), lr=0.01))
    """),
    "freeze a module": ("freeze-without-effect", """
        model = Net()
        model.encoder.requires_grad = False  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.01))
    """),
    "frozen head": ("last-layer-frozen", """
        model = Net()
        for name, p in model.named_parameters():
            p.requires_grad = "head" not in name  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.01))
    """),
    "betas": ("betas-exchanged", """
        model = Net()
        train(model, torch.optim.Adam(model.parameters(), betas=(0.999, 0.9)))  # HERE
    """),
    "small rate": ("learning-rate-too-small", """
        model = Net()
        train(model, torch.optim.Adam(model.parameters(), lr=1e-7), 60, size=256)  # HERE
    """),
    "small rate, and a loss that jumps from batch to batch": ("learning-rate-too-small", """
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=4e-7), 60, size=2)  # HERE
    """),
    "large rate": ("learning-rate-too-large", """
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=300.0, momentum=0.9), 40)  # HERE
    """),
    "raw inputs": ("inputs-not-normalised", """
        x = x * 100 + 100
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        train(model, torch.optim.Adam(model.parameters(), lr=1e-3), 20)
    """),
    "dead inside": ("gradient-all-zero", """
        class Dead(Net):
            def __init__(self):
                super().__init__()
                self.act = nn.ReLU()
                nn.init.constant_(self.encoder[0].bias, 2.0)
                self.mid = nn.Linear(16, 16)
                nn.init.constant_(self.mid.bias, -30.0)  # HERE
            def forward(self, x):
                return self.head(self.act(self.mid(self.encoder(x))))
        model = Dead()
        train(model, torch.optim.SGD(model.parameters(), lr=0.01), 40)
    """),
    "weights initialised in every epoch": ("weights-reset", """
        model = Net()
        def init(m):
            if isinstance(m, nn.Linear):
                nn.init.xavier_uniform_(m.weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(4):
            model.apply(init)  # HERE
            train(model, optimizer, 6)
    """),
    "layer norm of one feature": ("normalised-over-one-value", """
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1), nn.LayerNorm(1))  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=F.mse_loss, target=t)
    """),
    "tanh for large targets": ("output-cannot-reach-targets", """
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1), nn.Tanh())  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=F.mse_loss, target=t * 5 + 20)
    """),
    "parameter times a constant": ("tensor-not-registered", """
        class Prompted(nn.Module):
            def __init__(self):
                super().__init__()
                self.shift = nn.Parameter(torch.randn(8)) * 0.1  # HERE
                self.head = nn.Linear(8, 3)
            def forward(self, x):
                return self.head(x + self.shift)
        model = Prompted()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward(retain_graph=True)
            optimizer.step()
    """),
    "step behind the loop": ("gradients-discarded", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(5):
            for index in torch.randperm(256).split(64):
                optimizer.zero_grad()
                F.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()  # HERE
    """),
    "generator's loss on the detached fake": ("loss-without-graph", """
        G, D = nn.Linear(8, 8), nn.Linear(8, 1)
        opt_g, opt_d = torch.optim.SGD(G.parameters(), lr=0.1), torch.optim.SGD(D.parameters(), lr=0.1)
        for _ in range(12):
            fake = G(torch.randn(16, 8))
            loss_d = F.softplus(D(fake.detach())).mean() + F.softplus(-D(x[:16])).mean()
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()
            loss_g = F.softplus(-D(fake.detach())).mean()  # HERE
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
    """),
    "plateau that waits for an accuracy to fall": ("learning-rate-collapses", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)  # HERE
        for epoch in range(12):
            train(model, optimizer, 5)
            plateau.step(0.5 + 0.03 * epoch)
    """),
    "targets of a loader that are all 0": ("labels-constant", """
        from torch.utils.data import DataLoader, Dataset
        class Scores(Dataset):
            def __len__(self):
                return 128
            def __getitem__(self, i):
                score = int(torch.sigmoid(x[i, 0]))  # whole, by mistake
                return x[i], torch.tensor([float(score)])  # HERE
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for a, b in DataLoader(Scores(), batch_size=8):
            optimizer.zero_grad()
            F.mse_loss(model(a), b).backward()
            optimizer.step()
    """),
    "language model that copies": ("target-is-input", """
        ids = torch.randint(0, 9, (256, 6))
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.rnn, self.head = nn.Embedding(9, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 9)
            def forward(self, ids):
                return self.head(self.rnn(self.embed(ids))[0])
        model = Words()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            index = torch.randint(0, 256, (16,))
            given, wanted = ids[index], ids[index]  # HERE
            optimizer.zero_grad()
            F.cross_entropy(model(given).flatten(0, 1), wanted.flatten()).backward()
            optimizer.step()
    """),
    "two views and nothing else": ("constant-output-is-best", """
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        def loss(out, _):
            other = model(x[:16] + 0.1)
            return -F.cosine_similarity(out, other).mean()  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=loss)
    """),
    "backward without the gradient": ("backward-ignores-gradient", """
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x
            @staticmethod
            def backward(ctx, gradient):
                (x,) = ctx.saved_tensors
                return 2 * x  # HERE
        class Squared(Net):
            def forward(self, x):
                return self.head(Square.apply(self.encoder(x)))
        model = Squared()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
}  # fmt: skip

NEAR_MISSES: dict[str, str] = {
    "parts of states, and a second try": """
        model, other = Net(), Net()
        model.load_state_dict(nn.ModuleDict({"encoder": Net().encoder}).state_dict(), strict=False)
        fresh = nn.ModuleDict({"encoder": Net().encoder, "classifier": nn.Linear(16, 10)}).state_dict()
        model.load_state_dict(fresh, strict=False)
        state = {f"module.{key}": value for key, value in Net().state_dict().items()}
        left = other.load_state_dict(state, strict=False)
        if left.unexpected_keys:
            other.load_state_dict({key.removeprefix("module."): value for key, value in state.items()}, strict=False)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        train(other, torch.optim.SGD(other.parameters(), lr=0.1))
    """,
    "memory that gets values in three ways": """
        class Turned(Net):
            def __init__(self):
                super().__init__()
                self.register_buffer("table", torch.arange(3.0), persistent=False)
            def forward(self, x):
                return super().forward(x) + 0 * self.table
        with torch.device("meta"):
            model = Turned()
        model.to_empty(device="cpu")
        model.encoder.load_state_dict(Net().encoder.state_dict())
        model.head.weight.data.normal_(std=0.1)
        model.head.bias.data.zero_()
        model.table = torch.arange(3.0)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        with torch.device("meta"):
            model = Net()
        model.to_empty(device="cpu")
        model.load_state_dict(Net().state_dict(), assign=True)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """,
    "heads that fit nowhere": """
        model = Net()
        model.load_state_dict({f"old.{key}": value.new_zeros(2, 2) for key, value in Net().state_dict().items()}, strict=False)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """,
    "a buffer that is copied, and samples that are views": """
        from torch.utils.data import DataLoader, Dataset
        class Rows(Dataset):
            def __init__(self):
                self.row = torch.zeros(8)
                self.kept = [x[k] for k in range(256)]
            def __len__(self):
                return 256
            def __getitem__(self, k):
                self.row.copy_(self.kept[k])
                return self.row.clone(), y[k]
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for a, b in DataLoader(Rows(), batch_size=16, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(a), b).backward()
            optimizer.step()
    """,
    "constants made in the loss": """
        model = Net()
        def weighted(a, b):
            return torch.tensor(0.5) * F.cross_entropy(a, b, weight=torch.tensor([1.0, 2.0, 1.0]))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=weighted)
    """,
    "states of others, copied and assigned": """
        model, target = Net(), Net()
        target.load_state_dict(model.state_dict())
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), after=lambda: target.load_state_dict(model.state_dict()))
        best = copy.deepcopy(model.state_dict())
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        model.load_state_dict(best)
        target.load_state_dict(model.state_dict(), assign=True)
    """,
    "a summed loss that falls": """
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.001), 30, size=256,
              loss=lambda out, y: F.cross_entropy(out, y, reduction="sum"))
    """,
    "an episode beside a critic that steps at once": """
        actor, critic = Net(), Net()
        slow, fast = torch.optim.SGD(actor.parameters(), lr=0.01), torch.optim.SGD(critic.parameters(), lr=0.01)
        for episode in range(3):
            kept = []
            for step in range(20):
                kept.append(F.cross_entropy(actor(x[:16]), y[:16]))
                train(critic, fast, 1)
            slow.zero_grad()
            torch.stack(kept).mean().backward()
            slow.step()
    """,
    "argmin with a straight-through estimate": """
        class Codes(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.codes, self.head = nn.Linear(8, 4), nn.Embedding(6, 4), nn.Linear(4, 3)
            def forward(self, x):
                z = self.encoder(x)
                chosen = self.codes(torch.cdist(z, self.codes.weight).argmin(1))
                self.drawn = F.mse_loss(chosen, z.detach())
                return self.head(z + (chosen - z).detach())
        model = Codes()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=lambda out, y: F.cross_entropy(out, y) + model.drawn)
    """,
    "a plain SGD for every step": """
        model = Net()
        for _ in range(15):
            train(model, torch.optim.SGD(model.parameters(), lr=0.1), 1)
    """,
    "an Adam for every inner loop": """
        model = Net()
        for _ in range(12):
            train(model, torch.optim.Adam(model.parameters(), lr=0.01), 5)
    """,
    "masks the right way round": """
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(9, 8, padding_idx=0)
                self.mix = nn.MultiheadAttention(8, 2, batch_first=True)
                self.head = nn.Linear(8, 3)
            def forward(self, ids):
                hidden = self.embed(ids)
                real = ids != 0
                hidden = self.mix(hidden, hidden, hidden, key_padding_mask=~real)[0]
                hidden = F.scaled_dot_product_attention(hidden, hidden, hidden, attn_mask=real.unsqueeze(1))
                scores = (hidden @ hidden.mT).masked_fill(real.float().unsqueeze(1) == 0, float("-inf"))
                return self.head((scores.softmax(-1) @ hidden).mean(1))
        ids = torch.randint(1, 9, (256, 6))
        ids[:, 4:] = 0
        x = ids
        model = Words()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """,
    "padding that the loss ignores": """
        ids = torch.randint(1, 9, (256, 6))
        ids[:, 2:] = 0
        model = nn.Sequential(nn.Embedding(9, 8, padding_idx=0), nn.Linear(8, 9))
        x, y = ids[:, 0], ids
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=lambda out, y: F.cross_entropy(
            out.repeat_interleave(6, 0), y.flatten(), ignore_index=0))
    """,
    "a reward that is maximised": """
        policy = Net()
        reward = F.one_hot(y, 3).float()
        train(policy, torch.optim.SGD(policy.parameters(), lr=0.1, maximize=True), 30, target=reward,
              loss=lambda out, reward: (out.softmax(-1) * reward).sum(-1).mean())
    """,
    "actions of a policy": """
        class Actor(nn.Module):
            def __init__(self):
                super().__init__()
                self.mean, self.value = nn.Linear(8, 2), nn.Linear(10, 1)
            def forward(self, x):
                drawn = torch.distributions.Normal(self.mean(x), 1.0)
                action = drawn.sample()
                worth = self.value(torch.cat((x, action), -1)).squeeze(-1)
                return worth - drawn.log_prob(action).sum(-1) * worth.detach()
        model = Actor()
        train(model, torch.optim.SGD(model.parameters(), lr=0.001), target=t, loss=lambda out, t: F.mse_loss(out, t[:, 0]))
    """,
    "actions that a critic judges": """
        class Bandit(nn.Module):
            def __init__(self):
                super().__init__()
                self.mean, self.value = nn.Linear(8, 2), nn.Linear(2, 1)
            def forward(self, x):
                drawn = torch.distributions.Normal(self.mean(x), 1.0)
                action = drawn.sample()
                worth = self.value(action).squeeze(-1)
                return worth - drawn.log_prob(action).sum(-1) * worth.detach()
        model = Bandit()
        train(model, torch.optim.SGD(model.parameters(), lr=0.001), target=t, loss=lambda out, t: F.mse_loss(out, t[:, 0]))
    """,
    "rollouts of a policy with dropout, which the loop beside them learns from": """
        net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.05), nn.Linear(16, 2))
        optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
        def rollout():
            with torch.no_grad():
                s = torch.randn(64, 8)
                d = torch.distributions.Categorical(logits=net(s))
                a = d.sample()
                return s, a, d.log_prob(a), (a == (s[:, 0] > 0)).float() - 0.5
        for _ in range(20):
            s, a, before, gain = rollout()
            for _ in range(2):
                ratio = (torch.distributions.Categorical(logits=net(s)).log_prob(a) - before).exp()
                loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    """,
    "forces of an energy, to which the last bias adds nothing": """
        class Forces(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
            def forward(self, x):
                x = x.requires_grad_(True)
                return torch.autograd.grad(self.net(x).sum(), x, create_graph=True)[0]
        model = Forces()
        train(model, torch.optim.Adam(model.parameters(), lr=0.01), target=2 * x, loss=F.mse_loss)
    """,
    "a norm of another library, whose momentum weighs the old statistics": """
        class BatchNormalization(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.momentum, self.inner = 0.99, nn.BatchNorm1d(width, momentum=0.01)
            def forward(self, x):
                return self.inner(x)
        model = nn.Sequential(nn.Linear(8, 16), BatchNormalization(16), nn.ReLU(), nn.Linear(16, 3))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 60)
    """,
    "a norm without momentum that is only trained": """
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16, momentum=0), nn.ReLU(), nn.Linear(16, 3))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """,
    "features correlated over the batch": """
        class Twins(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(8, 6)
            def forward(self, x):
                one, two = self.net(x), self.net(x + 0.1 * torch.randn_like(x))
                return F.normalize(one, dim=0).T @ F.normalize(two, dim=0)
        model = Twins()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=lambda out, _: F.mse_loss(out, torch.eye(6)))
    """,
    "one permutation for both": """
        order = torch.randperm(256)
        a, b = x, y
        a = a[order]
        b = b[order]
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(40):
            index = torch.randint(0, 256, (16,))
            optimizer.zero_grad()
            F.cross_entropy(model(a[index]), b[index]).backward()
            optimizer.step()
    """,
    "images with a black border": """
        from torch.utils.data import DataLoader, TensorDataset
        images = torch.zeros(160, 1, 12, 12)
        images[:, 0, 4:8, 4:8] = torch.randn(160, 4, 4)
        labels = (images[:, 0, 4:8, 4].sum(1) > 0).long()
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(2):
            for a, b in DataLoader(TensorDataset(images, labels), batch_size=8):
                optimizer.zero_grad()
                F.cross_entropy(model(a), b).backward()
                optimizer.step()
    """,
    "one batch on purpose": """
        from torch.utils.data import DataLoader, TensorDataset
        a, b = next(iter(DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)))
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(40):
            optimizer.zero_grad()
            F.cross_entropy(model(a), b).backward()
            optimizer.step()
    """,
    "straight through, and tied": """
        class Quantised(nn.Module):
            def __init__(self):
                super().__init__()
                self.into, self.out = nn.Linear(8, 8), nn.Linear(8, 8)
                self.last = nn.Linear(8, 3)
                self.out.weight = self.into.weight
            def forward(self, x):
                h = torch.tanh(self.out(torch.tanh(self.into(x))))
                return self.last(h + (torch.round(h * 4) / 4 - h).detach())
        model = Quantised()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 20)
    """,
    "tensor in the optimizer, and a constant": """
        class Shifted(Net):
            def __init__(self):
                super().__init__()
                self.shift = torch.zeros(3, requires_grad=True)
                self.scale = torch.ones(3)
            def forward(self, x):
                return super().forward(x) * self.scale + self.shift
        model = Shifted()
        train(model, torch.optim.SGD([*model.parameters(), model.shift], lr=0.1), 20)
    """,
    "warm restarts": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=10)
        train(model, optimizer, 60, after=lambda: schedule.step())
    """,
    "large column, normalised first": """
        model = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        wide = x * torch.tensor([1.0, 1, 1, 1, 1, 1, 1, 40000])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(30):
            index = torch.randint(0, 256, (32,))
            optimizer.zero_grad()
            F.cross_entropy(model(wide[index]), y[index]).backward()
            optimizer.step()
    """,
    "a gate that begins shut": """
        class Highway(Net):
            def __init__(self):
                super().__init__()
                self.gate, self.inner = nn.Linear(16, 16), nn.Linear(16, 16)
                nn.init.constant_(self.gate.bias, -5.0)
            def forward(self, x):
                h = self.encoder(x)
                g = torch.sigmoid(self.gate(h))
                return self.head(g * torch.tanh(self.inner(h)) + (1 - g) * h)
        model = Highway()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 30)
    """,
    "evaluated in eval mode with gradients": """
        model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(4):
            model.train()
            train(model, optimizer, 10)
            model.eval()
            print((model(x).argmax(1) == y).float().mean().item())
    """,
    "master weights": """
        model = Net().bfloat16()
        master = [p.detach().float().requires_grad_() for p in model.parameters()]
        optimizer = torch.optim.SGD(master, lr=0.1)
        for _ in range(20):
            F.cross_entropy(model(x.bfloat16()).float(), y).backward()
            for p, m in zip(model.parameters(), master):
                m.grad, p.grad = p.grad.float(), None
            optimizer.step()
            with torch.no_grad():
                for p, m in zip(model.parameters(), master):
                    p.copy_(m)
    """,
    "frozen backbone": """
        model = Net()
        model.encoder.requires_grad_(False)
        train(model, torch.optim.SGD(model.head.parameters(), lr=0.1), 30)
    """,
    "target network": """
        model = Net()
        target = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        def average():
            with torch.no_grad():
                for a, b in zip(target.parameters(), model.parameters()):
                    a.lerp_(b, 0.1)
                target(x)
        train(model, optimizer, 20, after=average)
    """,
    "distillation": """
        model, teacher = Net(), Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            with torch.no_grad():
                wanted = teacher(x).softmax(1)
            optimizer.zero_grad()
            F.kl_div(model(x).log_softmax(1), wanted, reduction="batchmean").backward()
            optimizer.step()
    """,
    "module list": """
        class Deep(Net):
            def __init__(self):
                super().__init__()
                self.more = nn.ModuleList([nn.Linear(16, 16)])
                self.kept = [nn.ReLU()]
            def forward(self, x):
                return self.head(self.kept[0](self.more[0](self.encoder(x))))
        model = Deep()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 20)
    """,
    "replaced before": """
        model = Net()
        model.head = nn.Linear(16, 3)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 20)
    """,
    "auxiliary detach": """
        class Two(Net):
            def __init__(self):
                super().__init__()
                self.side = nn.Linear(16, 3)
            def forward(self, x):
                h = self.encoder(x)
                return self.head(h) + self.side(h.detach())
        model = Two()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 20)
    """,
    "accumulated": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(40):
            k = step * 4
            (F.cross_entropy(model(x[k : k + 16]), y[k : k + 16]) / 4).backward()
            if step % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
    """,
    "attack on inputs": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(12):
            bad = x.clone().requires_grad_()
            F.cross_entropy(model(bad), y).backward()
            bad = (x + 0.1 * bad.grad.sign()).detach()
            optimizer.zero_grad()
            F.cross_entropy(model(bad), y).backward()
            optimizer.step()
    """,
    "two steps of SAM": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(12):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            moved = [p.grad * 0.05 for p in model.parameters()]
            with torch.no_grad():
                for p, d in zip(model.parameters(), moved):
                    p.add_(d)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                for p, d in zip(model.parameters(), moved):
                    p.sub_(d)
            optimizer.step()
    """,
    "two networks": """
        G, D = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(), nn.Linear(16, 1))
        g, d = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
        one, zero = torch.ones(16, 1), torch.zeros(16, 1)
        for step in range(20):
            d.zero_grad()
            fake = G(torch.randn(16, 4))
            loss = F.binary_cross_entropy_with_logits(D(x[:16]), one)
            (loss + F.binary_cross_entropy_with_logits(D(fake.detach()), zero)).backward()
            d.step()
            g.zero_grad()
            F.binary_cross_entropy_with_logits(D(fake), one).backward()
            g.step()
    """,
    "set to none by hand": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(12):
            for p in model.parameters():
                p.grad = None
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """,
    "warm-up and cosine": """
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.05)
        schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, 10),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)], [10])
        train(model, optimizer, 60, after=schedule.step)
    """,
    "plateau": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        for epoch in range(6):
            train(model, optimizer, 10)
            schedule.step(1.0)
    """,
    "mixed precision": """
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for _ in range(20):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    """,
    "bfloat16 that moves": """
        x = x.to(torch.bfloat16)
        model = Net().to(torch.bfloat16)
        train(model, torch.optim.Adam(model.parameters(), lr=1e-2), 20)
    """,
    "modes followed": """
        class Noisy(Net):
            def __init__(self):
                super().__init__()
                self.drop, self.norm = nn.Dropout(0.2), nn.BatchNorm1d(16)
            def forward(self, x):
                return self.head(F.dropout(self.drop(self.norm(self.encoder(x))), 0.1, self.training))
        model = Noisy()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(3):
            model.train()
            train(model, optimizer, 8)
            model.eval()
            with torch.no_grad():
                model(x)
    """,
    "frozen batch norm": """
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
        model[1].eval()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 20)
    """,
    "shuffled loader with workers": """
        from torch.utils.data import DataLoader, Dataset
        class Noisy(Dataset):
            def __len__(self):
                return 128
            def __getitem__(self, k):
                return x[k] + 0.1 * torch.randn(8), y[k]
        def seeded(worker):
            import random
            random.seed(torch.initial_seed() % 2**32)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for xb, yb in DataLoader(Noisy(), batch_size=8, shuffle=True, num_workers=2, worker_init_fn=seeded):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    """,
    "zero head and LoRA": """
        class Lora(Net):
            def __init__(self):
                super().__init__()
                nn.init.zeros_(self.head.weight)
                self.a, self.b = nn.Parameter(torch.randn(4, 8) * 0.1), nn.Parameter(torch.zeros(16, 4))
            def forward(self, x):
                return self.head(self.encoder(x) + x @ self.a.t() @ self.b.t())
        model = Lora()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 20)
    """,
    "episode": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for episode in range(6):
            kept = [model(x[k : k + 1]).log_softmax(1)[0, 0] for k in range(20)]
            optimizer.zero_grad()
            (-torch.stack(kept).sum()).backward()
            optimizer.step()
    """,
    "evaluation with gradients": """
        model = Net()
        for epoch in range(3):
            train(model, torch.optim.SGD(model.parameters(), lr=0.1), 10)
            total = 0.0
            for k in range(20):
                total += F.cross_entropy(model(x), y).item()
    """,
    "attention": """
        class Attention(Net):
            def forward(self, x):
                h = self.encoder(x).view(-1, 4, 4)
                q = h.view(-1, 4, 2, 2).transpose(1, 2)
                s = (q @ q.transpose(-1, -2)).softmax(-1)
                return self.head((s @ q).transpose(1, 2).reshape(-1, 16))
        model = Attention()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 20)
    """,
    "sequence first": """
        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn, self.head = nn.GRU(2, 8), nn.Linear(8, 3)
            def forward(self, x):
                return self.head(self.rnn(x.view(-1, 4, 2).transpose(0, 1))[0][-1])
        model = Recurrent()
        train(model, torch.optim.Adam(model.parameters(), lr=0.01), 20)
    """,
    "pairwise distances": """
        def contrast(a, b):
            d = (a - a[:, 0]) ** 2
            return d.mean() + F.mse_loss(a, b)
        model = nn.Linear(8, 1)
        train(model, torch.optim.SGD(model.parameters(), lr=0.01), 20, loss=contrast, target=t)
    """,
    "sorted by hand, one class a batch on purpose": """
        from torch.utils.data import BatchSampler, DataLoader, Sampler, TensorDataset
        class ByClass(Sampler):
            def __iter__(self):
                for k in range(8):
                    yield (y == k % 3).nonzero()[:8, 0].tolist()
            def __len__(self):
                return 8
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(2):
            for xb, yb in DataLoader(TensorDataset(x, y), batch_sampler=ByClass()):
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()
    """,
    "log_softmax and nll": """
        model = nn.Sequential(nn.Linear(8, 3), nn.LogSoftmax(dim=1))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 20, loss=F.nll_loss)
    """,
    "new start with a new optimizer": """
        for fold in range(3):
            model = Net() if fold == 0 else model
            for part in model.modules():
                if isinstance(part, nn.Linear):
                    part.reset_parameters()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            train(model, optimizer, 8)
    """,
    "one layer reset now and then": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            model.head.reset_parameters()
            train(model, optimizer, 8)
    """,
    "group norm of one channel a group": """
        class Picture(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.norm, self.head = nn.Conv1d(1, 4, 3), nn.GroupNorm(4, 4), nn.Linear(24, 3)
            def forward(self, x):
                return self.head(self.norm(self.conv(x[:, None])).flatten(1))
        model = Picture()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """,
    "tanh that is scaled to its targets": """
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
            def forward(self, x):
                return 20 * torch.tanh(self.net(x))
        model = Scaled()
        train(model, torch.optim.SGD(model.parameters(), lr=1e-3), loss=F.mse_loss, target=t * 3)
    """,
    "sigmoid for targets within its range": """
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=F.mse_loss, target=t.sigmoid() * 1.2 - 0.1)
    """,
    "bootstrapped target without a gradient": """
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        def loss(out, reward):
            following = model(x[torch.randint(0, 256, (16,))]).detach()
            return F.smooth_l1_loss(out[:, :1], reward + 0.9 * following.max(1, keepdim=True).values)
        train(model, torch.optim.SGD(model.parameters(), lr=0.01), loss=loss, target=t)
    """,
    "accumulation over an epoch": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(5):
            optimizer.zero_grad()
            for index in torch.randperm(256).split(64):
                (F.cross_entropy(model(x[index]), y[index]) / 4).backward()
            optimizer.step()
    """,
    "constant targets of one's own": """
        D = nn.Linear(8, 1)
        train(D, torch.optim.SGD(D.parameters(), lr=0.1), loss=F.mse_loss, target=torch.ones(256, 1))
    """,
    "autoencoder of words": """
        ids = torch.randint(0, 9, (256, 6))
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.rnn, self.head = nn.Embedding(9, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 9)
            def forward(self, ids):
                _, state = self.rnn(self.embed(ids))
                return self.head(self.rnn(torch.zeros(len(ids), 6, 8), state)[0])
        model = Words()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            given = ids[torch.randint(0, 256, (16,))]
            optimizer.zero_grad()
            F.cross_entropy(model(given).flatten(0, 1), given.flatten()).backward()
            optimizer.step()
    """,
    "targets that are rolled": """
        ids = torch.randint(0, 9, (256, 6))
        model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            given = ids[torch.randint(0, 256, (16,))]
            optimizer.zero_grad()
            F.cross_entropy(model(given).flatten(0, 1), given.roll(-1, 1).flatten()).backward()
            optimizer.step()
    """,
    "two views with a variance": """
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        def loss(out, _):
            other = model(x[:16] + 0.1)
            return F.mse_loss(out, other) + F.relu(1 - out.std(0)).mean()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=loss)
    """,
    "own loss without the gradient that is 1": """
        class Loss(torch.autograd.Function):
            @staticmethod
            def forward(ctx, out, y):
                p = out.softmax(1)
                ctx.save_for_backward(p, y)
                return -p.gather(1, y[:, None]).log().mean()
            @staticmethod
            def backward(ctx, gradient):
                p, y = ctx.saved_tensors
                return (p - F.one_hot(y, 3)) / len(y), None
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=Loss.apply)
    """,
    "Monte-Carlo dropout": """
        model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model.train()
            train(model, optimizer, 5)
            model.eval()
            model[1].train()
            with torch.no_grad():
                torch.stack([model(x) for _ in range(4)]).std(0)
    """,
}
