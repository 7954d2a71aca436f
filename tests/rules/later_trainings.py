"""More tiny trainings, in the form of `silent_trainings`: stages, targets, evaluations, depth."""

from __future__ import annotations

LANGUAGE = """
        ids = torch.randint(0, 9, (256, 9))
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(9, 8), nn.Linear(8, 9)
                layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
                self.mixing = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
                self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
                self.rnn = nn.LSTM(8, 4, batch_first=True, bidirectional=True)
            def forward(self, given):
                h = self.embed(given)
                return self.head(self.mix(h))
        def run(model, given=lambda rows: rows[:, :-1], wanted=lambda rows: rows[:, 1:]):
            optimizer = torch.optim.SGD([p for p in model.parameters()], lr=0.1)
            for _ in range(12):
                rows = ids[torch.randint(0, 256, (16,))]
                optimizer.zero_grad()
                F.cross_entropy(model(given(rows)).transpose(1, 2), wanted(rows)).backward()
                optimizer.step()
"""
"""`mix` is what the tests give; what is not used of the model is not trained, which is another rule's matter."""

TABLE = """
        class Placed(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.mixing, self.head = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Linear(8, 3)
                self.register_buffer("table", torch.randn(1, 32, 8))
            def forward(self, ids):
                return self.head(torch.tanh(self.mixing(self.place(self.embed(ids)))).mean(1))
        ids = torch.randint(0, 9, (256, 6))
        def run(model):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(12):
                index = torch.randint(0, 256, (16,))
                optimizer.zero_grad()
                F.cross_entropy(model(ids[index]), y[index]).backward()
                optimizer.step()
"""

STUDENT = """
        teacher, student = Net(), Net()
        train(teacher, torch.optim.SGD(teacher.parameters(), lr=0.1))
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for _ in range(12):
            with torch.no_grad():
                wanted = teacher(x[:32]).softmax(1)
            optimizer.zero_grad()
"""

DENOISING = """
        model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            clean = x[torch.randint(0, 256, (32,))]
"""

EVALUATED = """
        raw = x * torch.tensor([1.0, 50.0, 1000.0, 0.1, 5.0, 20.0, 3.0, 9.0]) + torch.arange(8) * 40.0
        mean, std = raw[:200].mean(0), raw[:200].std(0)
        model = Net()
        def evaluate(inputs):
            model.eval()
            with torch.no_grad():
                model(inputs)
            model.train()
        def run(inputs, after):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(24):
                index = torch.randint(0, 200, (16,))
                optimizer.zero_grad()
                F.cross_entropy(model(inputs[index]), y[index]).backward()
                optimizer.step()
                if step % 6 == 5:
                    after()
"""

FROZEN = """
        backbone = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
        head = nn.Linear(16, 3)
        def run(optimizer, steps=80, before=lambda: None):
            for _ in range(steps):
                before()
                index = torch.randint(0, 256, (16,))
                optimizer.zero_grad()
                F.cross_entropy(head(backbone(x[index])), y[index]).backward()
                optimizer.step()
"""

DEEP = """
        def deep(act, depth=10):
            parts = [nn.Linear(8, 16), act()]
            for _ in range(depth - 1):
                parts += [nn.Linear(16, 16), act()]
            return nn.Sequential(*parts, nn.Linear(16, 3))
"""
SPEECH = """
        class Listener(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn, self.head = nn.GRU(6, 12, batch_first=True), nn.Linear(12, 5)
            def forward(self, sound):
                return self.head(self.rnn(sound)[0])
        def listen(least=1, dim=2, frames=10, padded=False, length=3):
            model, ctc = Listener(), nn.CTCLoss(zero_infinity=True)
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            for _ in range(20):
                sound, text = torch.randn(8, 10, 6), torch.randint(least, 5, (8, 3))
                text[:, 1] = (text[:, 0] % 4) + 1
                lengths = torch.full((8,), length)
                if padded:
                    text = F.pad(text, (0, 2))
                out = F.log_softmax(model(sound), dim=dim).transpose(0, 1)  # DIM
                optimizer.zero_grad()
                ctc(out, text if padded else text.flatten(), torch.full((8,), frames), lengths).backward()  # CTC
                optimizer.step()
"""
PICTURES = """
        images = 0.5 + 0.12 * torch.tensor([0.3, 1.0, -1.2])[:, None, None] + 0.1 * torch.randn(256, 3, 6, 6)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        def run(held, prepare=lambda a: (a - 0.5) / 0.2):
            for step in range(24):
                index = torch.randint(0, 256, (32,))
                optimizer.zero_grad()
                F.cross_entropy(model(prepare(images[index])), y[index]).backward()
                optimizer.step()
                if step % 6 == 5:
                    model.eval()
                    with torch.no_grad():
                        model(held)
                    model.train()
"""
TRANSLATE = """
        class Decoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.read, self.embed = nn.EmbeddingBag(12, 16), nn.Embedding(12, 16)
                self.cell, self.head = nn.GRUCell(16, 16), nn.Linear(16, 12)
            def forward(self, source, given):
                state, out = torch.tanh(self.read(source)), []
                for k in range(given.shape[1]):
                    state = self.cell(self.embed(given[:, k]), state)
                    out.append(self.head(state))
                return torch.stack(out, 1)
        def run(shift):
            model = Decoder()
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            for _ in range(30):
                source = torch.randint(2, 12, (16, 6))
                words = (source + 1).clamp(max=11)
                target = torch.cat([words, torch.ones(16, 1).long()], 1)  # HERE
                given = torch.cat([torch.ones(16, 1).long(), words], 1) if shift else target.clone()
                optimizer.zero_grad()
                F.cross_entropy(model(source, given).flatten(0, 1), target.flatten()).backward()
                optimizer.step()
"""
PIXELS = """
        pictures = torch.rand(128, 1, 8, 8)
        masks = (pictures[:, 0] > 0.5).long()
        def segment(augment):
            model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            for _ in range(20):
                index = torch.randint(0, 128, (16,))
                image, label = augment(pictures[index], masks[index])
                optimizer.zero_grad()
                F.cross_entropy(model(image), label).backward()
                optimizer.step()
"""
TABULAR = """
        centres = torch.tensor([60.0, 1.0, 2000.0, 5.0, 0.0, 2.0, 0.5, 30.0])
        scales = torch.tensor([3.0, 0.1, 900.0, 0.5, 0.2, 1.0, 0.1, 2.0])
        table = x * scales + centres
        def run(given):
            model = Net()
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            for _ in range(20):
                index = torch.randint(0, 256, (32,))
                optimizer.zero_grad()
                F.cross_entropy(model(given[index]), y[index]).backward()
                optimizer.step()
"""

BUGS: dict[str, tuple[str, str]] = {
    "pictures mirrored without their masks": ("labels-not-mirrored", PIXELS + """
        def augment(image, label):
            if torch.rand(1) < 0.5:
                image = image.flip(-1)  # HERE
            return image, label
        segment(augment)
    """),
    "a table scaled by one number": ("inputs-not-normalised", TABULAR + """
        run((table - table.mean()) / table.std())
    """),
    "targets that hold the blank": ("ctc-targets-misfit", SPEECH.replace("# CTC", "# HERE") + """
        listen(least=0)
    """),
    "log-probabilities over time": ("softmax-over-wrong-dimension", SPEECH.replace("# DIM", "# HERE") + """
        listen(dim=1)
    """),
    "targets longer than their sound": ("ctc-targets-misfit", SPEECH.replace("# CTC", "# HERE") + """
        listen(frames=2)
    """),
    "the first state kept for the best": ("initial-weights-evaluated", """
        model = Net()
        best = copy.deepcopy(model.state_dict())
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 30)
        model.load_state_dict(best)  # HERE
        with torch.no_grad():
            model.eval()(x)
    """),
    "pictures as they are in validation": ("evaluated-on-another-scale", PICTURES + """
        run(images[:64])
    """),
    "channels the other way round in validation": ("evaluated-on-other-channels", PICTURES + """
        run(((images[:64] - 0.5) / 0.2).flip(1))
    """),
    "a decoder that is given its answer": ("target-is-input", TRANSLATE + """
        run(shift=False)
    """),
    "left out of an optimizer with a closure": ("parameter-not-in-optimizer", """
        class Task(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.head = Net(), nn.Linear(3, 3)
            def forward(self, x):
                return self.head(self.net(x))
        model = Task()
        optimizer = torch.optim.Adam(model.net.parameters(), lr=0.01)  # HERE
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss
        for step in range(12):
            optimizer.step(closure)
    """),
    "summed over a loader": ("graph-kept-alive", """
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        def evaluate():
            total = 0.0
            for a, b in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8):
                total = total + F.cross_entropy(model(a), b)  # HERE
            return total.item()
        print(evaluate())
    """),
    "hidden units die on the way": (
        "units-dead",
        """
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        steps = iter(range(40))
        def after():
            if next(steps) == 3:
                model[0].bias.data.fill_(-50.0)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 40, after=after)  # HERE
        """,
    ),
    "probabilities into kl_div, in a second stage": ("log-probabilities-expected", STUDENT + """
            F.kl_div(student(x[:32]).softmax(1), wanted, reduction="batchmean").backward()  # HERE
            optimizer.step()
    """),
    "smoothed probabilities into kl_div": ("log-probabilities-expected", STUDENT + """
            smooth = student(x[:32]).softmax(1) * 0.9 + 0.03
            F.kl_div(smooth, wanted, reduction="batchmean").backward()  # HERE
            optimizer.step()
    """),
    "noise drawn twice": ("target-is-fresh-noise", DENOISING + """
            wanted = torch.randn_like(clean)  # HERE
            noisy = 0.8 * clean + 0.6 * torch.randn_like(clean)
            optimizer.zero_grad()
            F.mse_loss(model(noisy), wanted).backward()
            optimizer.step()
    """),
    "noise drawn twice, a distance of one's own": ("target-is-fresh-noise", DENOISING + """
            noisy = clean + torch.randn(32, 8) * 0.6
            wanted = torch.randn(32, 8)  # HERE
            optimizer.zero_grad()
            (model(noisy) - wanted).pow(2).mean().backward()
            optimizer.step()
    """),
    "language model without a mask": ("sees-its-target", LANGUAGE + """
        class Open(Words):
            def mix(self, h):
                return self.mixing(h)  # HERE
        model = Open()
        model.q = model.k = model.v = model.rnn = None
        run(model)
    """),
    "own attention without a mask": ("sees-its-target", LANGUAGE + """
        class Open(Words):
            def mix(self, h):
                scores = self.q(h) @ self.k(h).transpose(1, 2) / 8 ** 0.5
                return h + scores.softmax(-1) @ self.v(h)  # HERE
        model = Open()
        model.mixing = model.rnn = None
        run(model)
    """),
    "attention of torch without a mask, shifted in the loss": ("sees-its-target", LANGUAGE + """
        class Open(Words):
            def mix(self, h):
                h = h + F.scaled_dot_product_attention(self.q(h), self.k(h), self.v(h))  # HERE
                return h[:, :-1]
        model = Open()
        model.mixing = model.rnn = None
        run(model, given=lambda rows: rows)
    """),
    "language model that reads both ways": ("sees-its-target", LANGUAGE + """
        class Open(Words):
            def mix(self, h):
                return self.rnn(h)[0]  # HERE
        model = Open()
        model.mixing = model.q = model.k = model.v = None
        run(model)
    """),
    "a series that is read both ways": ("sees-its-target", """
        series = torch.randn(400).cumsum(0) / 20
        class Forecast(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn, self.head = nn.GRU(1, 8, batch_first=True, bidirectional=True), nn.Linear(16, 1)
            def forward(self, given):
                return self.head(self.rnn(given)[0])  # HERE
        model = Forecast()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            at = torch.randint(0, 380, (16, 1)) + torch.arange(11)
            optimizer.zero_grad()
            F.mse_loss(model(series[at][:, :-1, None]), series[at][:, 1:, None]).backward()
            optimizer.step()
    """),
    "validation not normalised": ("evaluated-on-another-scale", EVALUATED + """
        held = raw[200:]  # HERE
        run((raw[:200] - mean) / std, lambda: evaluate(held))
    """),
    "images of 255 in validation": ("evaluated-on-another-scale", """
        images = torch.randint(0, 256, (256, 3, 4, 4)).float()
        held = images[:64]  # HERE
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(24):
            index = torch.randint(0, 256, (16,))
            optimizer.zero_grad()
            F.cross_entropy(model((images[index] / 255 - 0.5) / 0.29), y[index]).backward()
            optimizer.step()
            if step % 6 == 5:
                model.eval()
                with torch.no_grad():
                    model(held)
                model.train()
    """),
    "statistics of a frozen part": ("frozen-batch-norm-drifts", FROZEN + """
        run(torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1))
        for p in backbone.parameters():
            p.requires_grad = False  # HERE
        run(torch.optim.SGD(head.parameters(), lr=0.1))
    """),
    "ten sigmoids": ("gradient-vanishes", DEEP + """
        model = deep(nn.Sigmoid)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 60)
    """),
    "one row for all positions": ("one-row-for-all-positions", TABLE + """
        class Wrong(Placed):
            def place(self, h):
                return h + self.table[:, h.shape[1]]  # HERE
        run(Wrong())
    """),
}  # fmt: skip

NEAR_MISSES: dict[str, str] = {
    "pictures mirrored with their masks": PIXELS + """
        def augment(image, label):
            if torch.rand(1) < 0.5:
                image, label = image.flip(-1), label.flip(-1)
            return image, label
        segment(augment)
    """,
    "pictures mirrored as one with their masks": PIXELS + """
        def augment(image, label):
            both = torch.cat([image, label[:, None].to(image.dtype)], 1)
            if torch.rand(1) < 0.5:
                both = both.flip(-1)
            return both[:, :-1], both[:, -1].long()
        segment(augment)
    """,
    "pictures of one class each, mirrored": """
        pictures = x.reshape(256, 1, 2, 4).repeat(1, 1, 4, 2)
        model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 3))
        def augment(image):
            if torch.rand(1) < 0.5:
                image = image.flip(-1)
            return image
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(20):
            index = torch.randint(0, 256, (32,))
            optimizer.zero_grad()
            F.cross_entropy(model(augment(pictures[index])), y[index]).backward()
            optimizer.step()
    """,
    "a table scaled column by column": TABULAR + """
        run((table - table.mean(0)) / table.std(0))
    """,
    "a table with rare flags": TABULAR + """
        run(torch.cat([(table[:, :2] - centres[:2]) / scales[:2], (table[:, 2:] > centres[2:] + 2 * scales[2:]).float()], 1))
    """,
    "padding that is the blank": SPEECH + """
        listen(padded=True)
    """,
    "as many frames as letters": SPEECH + """
        listen(frames=4)
    """,
    "begun anew after a search": """
        model = Net()
        first = copy.deepcopy(model.state_dict())
        train(model, torch.optim.SGD(model.parameters(), lr=0.3), 30)
        model.load_state_dict(first)
        with torch.no_grad():
            model.eval()(x)
        model.train()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 30)
        with torch.no_grad():
            model.eval()(x)
    """,
    "noise in training only": PICTURES + """
        run((images[:64] - 0.5) / 0.2, lambda a: (a - 0.5) / 0.2 + 2 * torch.randn_like(a))
    """,
    "pictures of another camera": PICTURES + """
        run((images[:64] * torch.tensor([0.5, 0.8, 0.65])[:, None, None] - 0.5) / 0.2)
    """,
    "a decoder that is given its answer one later": TRANSLATE + """
        run(shift=True)
    """,
    "a guess for each label": """
        model = Net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        def votes(a):
            found = []
            for k in range(10):
                found += [model(a + 0.1 * k)]
            return torch.stack(found).mean(0).argmax(1)
        for a, b in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=64):
            print((votes(a) == b).sum().item())
    """,
    "a hinge that is met": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        other = nn.Linear(8, 1)
        second = torch.optim.SGD(other.parameters(), lr=0.01)
        for step in range(60):
            index = torch.randint(0, 256, (16,))
            optimizer.zero_grad(set_to_none=False)
            second.zero_grad()
            F.relu(1e-3 - model(x[index]).mean().abs()).backward()
            F.mse_loss(other(x[index]), t[index]).backward()
            optimizer.step()
            second.step()
        """,
    "one hidden unit in sixteen lives": """
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        steps = iter(range(40))
        def after():
            if next(steps) == 3:
                model[0].bias.data[1:] = -50.0
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 40, after=after)
        """,
    "log-probabilities into kl_div, in a second stage": STUDENT + """
            F.kl_div(student(x[:32]).log_softmax(1), wanted, reduction="batchmean").backward()
            optimizer.step()
    """,
    "the noise that was added": DENOISING + """
            noise = torch.randn_like(clean)
            optimizer.zero_grad()
            F.mse_loss(model(0.8 * clean + 0.6 * noise), noise).backward()
            optimizer.step()
    """,
    "a denoiser whose target is noisy": DENOISING + """
            other = clean + 0.1 * torch.randn_like(clean)
            optimizer.zero_grad()
            F.mse_loss(model(clean + 0.1 * torch.randn_like(clean)), other).backward()
            optimizer.step()
    """,
    "soft labels": """
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            real = torch.empty(16, 1).uniform_(0.8, 1.2)
            optimizer.zero_grad()
            F.mse_loss(model(x[torch.randint(0, 256, (16,))] + 0.1 * torch.randn(16, 8)), real).backward()
            optimizer.step()
    """,
    "a benchmark on noise": """
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            optimizer.zero_grad()
            F.mse_loss(model(torch.randn(16, 8)), torch.randn(16, 8)).backward()
            optimizer.step()
    """,
    "rows that follow each other": """
        series = torch.randn(400, 6).cumsum(0) / 20
        class Next(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn, self.head = nn.GRU(1, 8, batch_first=True, bidirectional=True), nn.Linear(16, 1)
            def forward(self, rows):
                return self.head(self.rnn(rows[..., None])[0])[..., 0]
        model = Next()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(12):
            optimizer.zero_grad()
            F.mse_loss(model(series[step * 16 : step * 16 + 16]), series[step * 16 + 1 : step * 16 + 17]).backward()
            optimizer.step()
    """,
    "a mask on a language model": LANGUAGE + """
        class Causal(Words):
            def mix(self, h):
                return self.mixing(h, mask=nn.Transformer.generate_square_subsequent_mask(h.shape[1]))
        model = Causal()
        model.q = model.k = model.v = model.rnn = None
        run(model)
    """,
    "own attention with a mask": LANGUAGE + """
        class Causal(Words):
            def mix(self, h):
                scores = self.q(h) @ self.k(h).transpose(1, 2) / 8 ** 0.5
                hidden = torch.ones(8, 8).triu(1).bool()
                return h + scores.masked_fill(hidden, -1e9).softmax(-1) @ self.v(h)
        model = Causal()
        model.mixing = model.rnn = None
        run(model)
    """,
    "causal attention of torch, by position": LANGUAGE + """
        class Causal(Words):
            def mix(self, h):
                return h + F.scaled_dot_product_attention(self.q(h), self.k(h), self.v(h), None, 0.0, True)
        model = Causal()
        model.mixing = model.rnn = None
        run(model)
    """,
    "an encoder that sees all, a decoder that does not": LANGUAGE + """
        class Both(Words):
            def mix(self, h):
                seen = self.mixing(h)
                asked = self.q(h) @ seen.transpose(1, 2)
                return F.scaled_dot_product_attention(self.k(h), self.v(h), h, is_causal=True) + asked.softmax(-1) @ seen
        model = Both()
        model.rnn = None
        run(model)
    """,
    "labels of words": LANGUAGE + """
        class Tagger(Words):
            def mix(self, h):
                return self.mixing(h)
        model = Tagger()
        model.q = model.k = model.v = model.rnn = None
        run(model, wanted=lambda rows: (rows[:, :-1] * 2 + rows[:, 1:]) % 9)
    """,
    "validation normalised": EVALUATED + """
        held = (raw[200:] - mean) / std
        run((raw[:200] - mean) / std, lambda: evaluate(held))
    """,
    "validation of another domain": EVALUATED + """
        held = (raw[200:] - mean) / std * 1.6 + 0.8
        run((raw[:200] - mean) / std, lambda: evaluate(held))
    """,
    "a wide range to plot": EVALUATED + """
        grid = torch.linspace(-30, 30, 64)[:, None].expand(64, 8)
        run((raw[:200] - mean) / std, lambda: evaluate(grid))
    """,
    "a frozen part in eval mode": FROZEN + """
        run(torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1))
        backbone.requires_grad_(False)
        run(torch.optim.SGD(head.parameters(), lr=0.1), before=backbone.eval)
    """,
    "random features that need statistics": FROZEN + """
        backbone.requires_grad_(False)
        run(torch.optim.SGD(head.parameters(), lr=0.1))
    """,
    "a part that is frozen for a while": FROZEN + """
        optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1)
        run(optimizer)
        backbone.requires_grad_(False)
        run(optimizer, 30)
        backbone.requires_grad_(True)
        run(optimizer, 40)
    """,
    "a teacher with statistics of its own": FROZEN + """
        teacher = copy.deepcopy(backbone).requires_grad_(False)
        teacher.load_state_dict(backbone.state_dict())
        def average():
            teacher(x[:16])
            with torch.no_grad():
                for a, b in zip(teacher.parameters(), backbone.parameters()):
                    a.lerp_(b, 0.1)
        run(torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1), 60, average)
    """,
    "a critic that is frozen in turns": """
        maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
        critic = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
        state = critic.state_dict()
        critic.load_state_dict({key: value.clone() for key, value in state.items()})
        first = torch.optim.Adam(maker.parameters(), lr=1e-3)
        second = torch.optim.Adam(critic.parameters(), lr=1e-3)
        for _ in range(60):
            fake = maker(torch.randn(16, 4))
            critic.requires_grad_(False)
            first.zero_grad()
            F.binary_cross_entropy_with_logits(critic(fake), torch.ones(16, 1)).backward()
            first.step()
            critic.requires_grad_(True)
            second.zero_grad()
            real = F.binary_cross_entropy_with_logits(critic(x[torch.randint(0, 256, (16,))]), torch.ones(16, 1))
            (real + F.binary_cross_entropy_with_logits(critic(fake.detach()), torch.zeros(16, 1))).backward()
            second.step()
    """,
    "ten rectifiers": DEEP + """
        model = deep(nn.ReLU)
        train(model, torch.optim.Adam(model.parameters(), lr=0.003), 60)
    """,
    "sigmoids with norms before them": DEEP + """
        model = deep(lambda: nn.Sequential(nn.LayerNorm(16), nn.Sigmoid()), 6)
        train(model, torch.optim.Adam(model.parameters(), lr=0.01), 80)
    """,
    "a slice of the table": TABLE + """
        class Right(Placed):
            def place(self, h):
                return h + self.table[:, : h.shape[1]]
        run(Right())
    """,
    "a row of another kind": TABLE + """
        class Kind(Placed):
            def place(self, h):
                return h + self.table[:, 3]
        run(Kind())
    """,
}  # fmt: skip
