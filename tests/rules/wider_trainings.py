"""Known defects in the forms that programs give them which write out what a library offers: losses, updates, schedules, masks of one's own."""

from __future__ import annotations

BY_HAND = """
        model = Net()
        def update(rate=0.1, parts=None):
            with torch.no_grad():
                for p in (parts or model).parameters():
                    p -= rate * p.grad
        def step(rate=0.1, parts=None):
            i = torch.randint(0, 256, (16,))
            model.zero_grad()
            F.cross_entropy(model(x[i]), y[i]).backward()
            update(rate, parts)
"""

WORDS = """
        ids = torch.randint(1, 9, (256, 9))
        ids[torch.arange(9)[None] >= torch.randint(3, 8, (256, 1))] = 0
        class Words(nn.Module):
            def __init__(self, pad):
                super().__init__()
                self.embed, self.rnn, self.head = nn.Embedding(9, 8, padding_idx=pad), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 9)
            def forward(self, given):
                return self.head(self.rnn(self.embed(given))[0])
        def run(model, loss):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(12):
                rows = ids[torch.randint(0, 256, (32,))]
                optimizer.zero_grad()
                loss(model(rows[:, :-1]), rows[:, 1:]).backward()
                optimizer.step()
"""

BUGS: dict[str, tuple[str, str]] = {
    "log-probabilities without a minus": ("loss-maximised", """
        def loss(out, target):
            return F.log_softmax(out, 1).gather(1, target[:, None]).mean()  # HERE
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.3), 60, loss=loss)
    """),
    "probabilities without a minus": ("loss-maximised", """
        def loss(out, target):
            p = torch.softmax(out, 1)[torch.arange(len(target)), target]
            return torch.log(p + 1e-9).mean()
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.3), 60, loss=loss)
    """),
    "negative by a factor, with a penalty": ("loss-maximised", """
        model = Net()
        def loss(out, target):
            return F.cross_entropy(out, target) * -1.0 + 1e-4 * sum((p ** 2).sum() for p in model.parameters())  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.3), 60, loss=loss)
    """),
    "own updates go uphill": ("loss-maximised", BY_HAND + """
        for _ in range(60):
            step(rate=-0.3)
    """),
    "softmax before log_softmax": ("activation-before-logit-loss", """
        model = nn.Sequential(nn.Linear(8, 3), nn.Softmax(dim=1))  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=lambda out, target: F.nll_loss(F.log_softmax(out, 1), target))
    """),
    "own softmax before cross-entropy": ("activation-before-logit-loss", """
        def softmax(z):
            e = torch.exp(z - z.amax(1, keepdim=True))
            return e / e.sum(1, keepdim=True)  # HERE
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=lambda out, target: F.cross_entropy(softmax(out), target))
    """),
    "sigmoid before an own focal loss": ("activation-before-logit-loss", """
        def focal(z, target):
            p = torch.sigmoid(z)
            right = p * target + (1 - p) * (1 - target)
            return (-((1 - right) ** 2) * torch.log(right + 1e-8)).mean()
        model = nn.Sequential(nn.Linear(8, 1), nn.Sigmoid())  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), target=(y > 0).float()[:, None], loss=focal)
    """),
    "softmax before an own cross-entropy": ("activation-before-logit-loss", """
        def ce(z, target):
            return (torch.logsumexp(z, 1) - z.gather(1, target[:, None])[:, 0]).mean()
        model = nn.Sequential(nn.Linear(8, 3), nn.Softmax(dim=-1))  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=ce)
    """),
    "relu before log_softmax": ("activation-before-logit-loss", """
        model = nn.Sequential(nn.Linear(8, 3), nn.ReLU(), nn.LogSoftmax(dim=1))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=F.nll_loss)
    """),
    "own softmax over queries": ("softmax-over-wrong-dimension", """
        class Mixing(nn.Module):
            def __init__(self):
                super().__init__()
                self.q, self.k, self.v, self.head = nn.Linear(2, 4), nn.Linear(2, 4), nn.Linear(2, 4), nn.Linear(4, 3)
            def forward(self, x):
                h = x.view(-1, 4, 2)
                e = torch.exp(self.q(h) @ self.k(h).transpose(1, 2) / 2)
                return self.head((e / e.sum(1, keepdim=True) @ self.v(h)).mean(1))  # HERE
        model = Mixing()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "a column of targets on purpose": ("loss-broadcasts", """
        model = nn.Linear(8, 1)
        def loss(out, target):
            return ((out.squeeze(-1) - target.unsqueeze(1)) ** 2).mean()  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), target=t[:, 0], loss=loss)
    """),
    "tanh with an own distance": ("output-cannot-reach-targets", """
        model = nn.Sequential(nn.Linear(8, 1), nn.Tanh())  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), target=t * 5, loss=lambda out, target: (target - out).abs().mean())
    """),
    "relu and standardised targets": ("output-cannot-reach-targets", """
        model = nn.Sequential(nn.Linear(8, 1), nn.ReLU())  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), target=t - t.mean() + 0.2, loss=F.mse_loss)
    """),
    "rate by hand": ("learning-rate-collapses", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for k in range(60):
            train(model, optimizer, 1)
            for group in optimizer.param_groups:
                group["lr"] *= 0.7  # HERE
    """),
    "rate of own updates": ("learning-rate-collapses", BY_HAND + """
        for k in range(80):
            step(rate=0.1 * 0.7 ** k)
    """),
    "warm-up by hand": ("learning-rate-never-reached", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for k in range(30):
            for group in optimizer.param_groups:
                group["lr"] = 0.1 * min(1, (k + 1) / 5000)  # HERE
            train(model, optimizer, 1)
    """),
    "rates for factors": ("learning-rate-never-reached", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 0.01 * 0.95 ** k)  # HERE
        for _ in range(6):
            train(model, optimizer, 5)
            scheduler.step()
    """),
    "the second rate is 0": ("learning-rate-zero", """
        model = Net()
        one = torch.optim.SGD(model.head.parameters(), lr=0.1)
        two = torch.optim.SGD(model.encoder.parameters(), lr=0.0)  # HERE
        for _ in range(12):
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()
            one.step()
            two.step()
    """),
    "a scheduler for each epoch": ("scheduler-out-of-step", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(8):
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.3)  # HERE
            train(model, optimizer, 6)
            scheduler.step()
    """),
    "an entry that nobody reads": ("hyperparameter-set-to-no-effect", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for k in range(4):
            for group in optimizer.param_groups:
                group["learning_rate"] = 0.1 * 0.5 ** k  # HERE
            train(model, optimizer, 4)
    """),
    "a penalty that rules": ("weight-decay-dominates", """
        model = Net()
        def loss(out, target):
            return F.cross_entropy(out, target) + 5.0 * sum(p.pow(2).sum() for p in model.parameters())  # HERE
        train(model, torch.optim.Adam(model.parameters(), lr=0.02), 60, loss=loss)
    """),
    "weights shrunk by hand": ("weight-decay-dominates", """
        model = Net()
        def shrink():
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(0.9)
        train(model, torch.optim.Adam(model.parameters(), lr=1e-3), 40, after=shrink)
    """),
    "clip by value": ("clip-limit-tiny", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            nn.utils.clip_grad_value_(model.parameters(), 1e-6)  # HERE
            optimizer.step()
    """),
    "clip by hand": ("clip-limit-tiny", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            for p in model.parameters():
                p.grad.clamp_(-1e-6, 1e-6)  # HERE
            optimizer.step()
    """),
    "dropout of a function": ("dropout-rate-extreme", """
        class Model(Net):
            def forward(self, x):
                return self.head(F.dropout(self.encoder(x), 0.95, self.training))  # HERE
        model = Model()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """),
    "left out of own updates": ("parameter-not-in-optimizer", BY_HAND + """
        for _ in range(20):
            step(parts=model.head)
    """),
    "cleared once per epoch": ("gradients-never-cleared", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for k in range(30):
            if k % 6 == 0:
                optimizer.zero_grad()
            i = torch.randint(0, 256, (16,))
            F.cross_entropy(model(x[i]), y[i]).backward()  # HERE
            optimizer.step()
    """),
    "the other optimizer is cleared": ("gradients-never-cleared", """
        model = Net()
        one, two = torch.optim.SGD(model.head.parameters(), lr=0.05), torch.optim.SGD(model.encoder.parameters(), lr=0.05)
        for _ in range(12):
            one.zero_grad()
            i = torch.randint(0, 256, (16,))
            F.cross_entropy(model(x[i]), y[i]).backward()  # HERE
            one.step()
            two.step()
    """),
    "strides that are not used": ("same-batch-every-step", """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for k in range(0, 256, 16):  # HERE
            optimizer.zero_grad()
            F.cross_entropy(model(x[:16]), y[:16]).backward()
            optimizer.step()
    """),
    "a generator begun anew": ("same-batch-every-step", """
        def batches():
            for k in range(0, 256, 16):
                yield x[k : k + 16], y[k : k + 16]
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            a, b = next(batches())  # HERE
            optimizer.zero_grad()
            F.cross_entropy(model(a), b).backward()
            optimizer.step()
    """),
    "evaluated in train mode, in short epochs": ("evaluated-in-train-mode", """
        model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.Linear(16, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(10):
            for i in torch.randperm(256)[:48].split(16):
                optimizer.zero_grad()
                F.cross_entropy(model(x[i]), y[i]).backward()
                optimizer.step()
            with torch.no_grad():  # HERE
                accuracy = (model(x).argmax(1) == y).float().mean()
    """),
    "evaluated in train mode, with two optimizers": ("evaluated-in-train-mode", """
        body, head = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3)), nn.Linear(16, 3)
        one, two = torch.optim.SGD(body.parameters(), lr=0.1), torch.optim.SGD(head.parameters(), lr=0.1)
        for _ in range(4):
            for i in torch.randperm(256).split(32):
                one.zero_grad()
                two.zero_grad()
                F.cross_entropy(head(body(x[i])), y[i]).backward()
                one.step()
                two.step()
            with torch.no_grad():  # HERE
                accuracy = (head(body(x)).argmax(1) == y).float().mean()
    """),
    "a part is left in eval mode": ("trained-in-eval-mode", """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3)), nn.Linear(16, 3)
            def forward(self, x):
                return self.head(self.body(x))
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        model.body.eval()  # HERE
        with torch.no_grad():
            features = model.body(x)
        train(model, optimizer, 20)
    """),
    "padding counts, the embedding has none": ("padding-in-loss", WORDS + """
        def loss(out, target):
            return F.cross_entropy(out.transpose(1, 2).reshape(-1, 9, 8), target)
        run(Words(None), lambda out, target: F.cross_entropy(out.reshape(-1, 9), target.reshape(-1)))  # HERE
    """),
    "padding counts in an own loss": ("padding-in-loss", WORDS + """
        def loss(out, target):
            each = -F.log_softmax(out, -1).gather(2, target[..., None])[..., 0]  # HERE
            return each.mean()
        run(Words(0), loss)
    """),
    "weights of deviation 1": ("weights-begin-out-of-scale", """
        model = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3))
        for layer in model[::2]:
            nn.init.normal_(layer.weight)  # HERE
        train(model, torch.optim.SGD(model.parameters(), lr=1e-3))
    """),
    "L-BFGS that comes back": ("lbfgs-without-line-search", """
        w = nn.Linear(1, 1)
        optimizer = torch.optim.LBFGS(w.parameters(), lr=1.0, max_iter=8)  # HERE
        tall = torch.linspace(-3, 3, 64)[:, None]
        calls = [0]
        def closure():
            optimizer.zero_grad()
            calls[0] += 1
            loss = ((w(tall) * (1e3 if calls[0] % 8 == 4 else 1.0) - tall.exp()) ** 2).mean()
            loss.backward()
            return loss
        for _ in range(4):
            optimizer.step(closure)
    """),
}  # fmt: skip

NEAR_MISSES: dict[str, str] = {
    "the likelihood is maximised": """
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.3), 60, loss=lambda out, target: -F.log_softmax(out, 1).gather(1, target[:, None]).mean())
    """,
    "rewards without a minus": """
        # costs, not rewards: the log-probability of what costs much is made smaller
        cost = (y[:, None] == torch.arange(3)).float() + 0.1 * torch.rand(256, 3)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(30):
            chosen = torch.distributions.Categorical(logits=model(x)).sample()
            log = F.log_softmax(model(x), 1).gather(1, chosen[:, None])[:, 0]
            optimizer.zero_grad()
            (log * (cost.gather(1, chosen[:, None])[:, 0] - 0.4)).mean().backward()
            optimizer.step()
    """,
    "a soft gate of a softmax": """
        class Model(Net):
            def forward(self, x):
                h = self.encoder(x)
                return self.head(h * torch.softmax(h, 1))
        model = Model()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """,
    "all pairs on purpose": """
        model = nn.Linear(8, 1)
        def rank(out, target):
            apart = out - out.T
            return F.softplus(-apart * torch.sign(target - target.T)).mean()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), target=t, loss=rank)
    """,
    "relu and targets of noise around 0": """
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1), nn.ReLU())
        train(model, torch.optim.SGD(model.parameters(), lr=0.05), 30, target=t.abs() + 0.01 * torch.randn(256, 1), loss=F.mse_loss)
    """,
    "a lambda of rates, with 1": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 0.1 * 0.95 ** k)
        for _ in range(6):
            train(model, optimizer, 5)
            scheduler.step()
    """,
    "a scheduler for each fold": """
        for _ in range(4):
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.3)
            for _ in range(6):
                train(model, optimizer, 3)
                scheduler.step()
    """,
    "a small penalty": """
        model = Net()
        def loss(out, target):
            return F.cross_entropy(out, target) + 1e-3 * sum(p.pow(2).sum() for p in model.parameters())
        train(model, torch.optim.Adam(model.parameters(), lr=0.02), 60, loss=loss)
    """,
    "clip by value, at a usual size": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(30):
            i = torch.randint(0, 256, (16,))
            optimizer.zero_grad()
            F.cross_entropy(model(x[i]), y[i]).backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.05)
            optimizer.step()
    """,
    "own updates of a probe": BY_HAND + """
        for p in model.encoder.parameters():
            p.requires_grad_(False)
        for _ in range(40):
            step(parts=model.head)
    """,
    "one batch on purpose": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for k in range(30):
            optimizer.zero_grad()
            F.cross_entropy(model(x[:16]), y[:16]).backward()
            optimizer.step()
    """,
    "a generator's samples in train mode": """
        G = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
        D = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
        g, d = torch.optim.Adam(G.parameters(), 1e-3), torch.optim.Adam(D.parameters(), 1e-3)
        for _ in range(4):
            for i in torch.randperm(256).split(32):
                fake = G(torch.randn(len(i), 4))
                d.zero_grad()
                (F.softplus(-D(x[i])).mean() + F.softplus(D(fake.detach())).mean()).backward()
                d.step()
                g.zero_grad()
                F.softplus(-D(fake)).mean().backward()
                g.step()
            with torch.no_grad():
                samples = G(torch.randn(16, 4))
    """,
    "batch norm frozen later": """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU()), nn.Linear(16, 3)
            def forward(self, x):
                return self.head(self.body(x))
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        model.body[1].eval()
        train(model, optimizer, 20)
    """,
    "a masked loss of one's own": WORDS + """
        def loss(out, target):
            each = -F.log_softmax(out, -1).gather(2, target[..., None])[..., 0]
            return (each * (target != 0)).sum() / (target != 0).sum()
        run(Words(0), loss)
    """,
    "gradients kept over two micro-batches": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for k in range(40):
            i = torch.randint(0, 256, (16,))
            (F.cross_entropy(model(x[i]), y[i]) / 2).backward()
            if k % 2:
                optimizer.step()
                optimizer.zero_grad()
    """,
}  # fmt: skip
