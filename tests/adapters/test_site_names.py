"""What sites are called: by the paths and variables that the user's own program uses."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from scripts import script

from launch import Foundry, Ran

TRAIN = """
def train(step, optimizers, steps=3):
    losses = []
    for _ in range(steps):
        loss = step()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses
"""


@pytest.fixture
def run(foundry: Foundry, tmp_path: Path):
    def run(body: str, **options: object) -> Ran:
        done = foundry.watched(script(TRAIN + textwrap.dedent(body)), tmp_path, **options)  # type: ignore[arg-type]
        assert done.code == 0, done.err
        assert done.session["failures"] == {}
        return done

    return run


def test_one_root_adds_nothing_to_the_paths_inside_it(run) -> None:
    ran = run("""
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(lambda: model(torch.randn(8, 4)).square().mean(), [optimizer])
    """)
    assert {"model:out", "model:grad", "0:out", "0:grad", "2:out", "loss:value"} <= ran.addresses
    assert {"0.weight:value", "0.weight:grad", "2.bias:grad", "1.running_mean:value"} <= ran.addresses
    assert not [address for address in ran.addresses if address.startswith("model.")]
    by_address = {site.address: site for site in ran.rank.sites.values()}
    assert by_address["0:out"].type == "Linear"
    assert by_address["0:out"].shape == (8, 8)
    assert by_address["0.weight:value"].trainable
    assert by_address["1.running_mean:value"].kind == "buffer"


def test_several_roots_are_told_apart_by_their_variables(run) -> None:
    ran = run("""
        G = nn.Sequential(nn.Linear(2, 4), nn.Tanh())
        D = nn.Sequential(nn.Linear(4, 1))
        optimizers = [torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())]
        train(lambda: D(G(torch.randn(8, 2))).square().mean(), optimizers)
    """)
    assert {"G:out", "G.0:out", "G.0:grad", "D.0:out", "D.0.weight:grad", "G.0.bias:value"} <= ran.addresses


def test_a_criterion_goes_by_its_own_name_and_leaves_the_model_its_paths(run) -> None:
    ran = run("""
        criterion = nn.MSELoss()
        model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1))
        train(lambda: criterion(model(torch.randn(8, 2)), torch.ones(8, 1)), [torch.optim.Adam(model.parameters())])
    """)
    assert {"criterion:out", "criterion:grad", "0:out", "1.weight:grad"} <= ran.addresses


def test_a_model_held_by_a_trainer(run) -> None:
    ran = run("""
        class Trainer:
            def __init__(self):
                self.net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
                self.loss = nn.L1Loss()
                self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

            def fit(self):
                train(self.step, [self.optimizer])

            def step(self):
                return self.loss(self.net(torch.randn(4, 2)), torch.zeros(4, 1))

        Trainer().fit()
    """)
    assert {"net:out", "0:out", "2.weight:value", "loss:out", "loss:value"} <= ran.addresses


def test_a_module_that_only_owns_what_is_called(run) -> None:
    """As LightningModules do it: `training_step` calls the parts, nobody calls the owner."""
    ran = run("""
        class Lit(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = nn.Sequential(nn.Linear(2, 4), nn.ReLU())
                self.decoder = nn.Linear(4, 2)

            def training_step(self, x):
                return F.mse_loss(self.decoder(self.encoder(x)), x)

        def fit(module):
            train(lambda: module.training_step(torch.randn(4, 2)), [torch.optim.SGD(module.parameters(), lr=0.1)])

        fit(Lit())
    """)
    assert {
        "encoder:out",
        "encoder.0:out",
        "decoder:grad",
        "decoder.weight:value",
        "encoder.0.weight:grad",
    } <= ran.addresses
    assert not [address for address in ran.addresses if address.startswith("parameter_")]


def test_wrappers_and_nesting(run) -> None:
    ran = run("""
        class Wrapper(nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module

            def forward(self, x):
                return self.module(x)

        wrapped = Wrapper(nn.Sequential(nn.Linear(2, 2), nn.ModuleDict({"a": nn.Linear(2, 1)})["a"]))
        train(lambda: wrapped(torch.randn(4, 2)).square().mean(), [torch.optim.SGD(wrapped.parameters(), lr=0.1)])
    """)
    assert {"wrapped:out", "module:out", "module.0:out", "module.1.weight:grad"} <= ran.addresses


def test_modules_hidden_in_lists_and_dicts(run) -> None:
    ran = run("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.stem = nn.Linear(2, 4)
                self.layers = [nn.Linear(4, 4), nn.Linear(4, 4)]
                self.heads = {"x": nn.Linear(4, 1)}

            def forward(self, x):
                x = self.stem(x)
                for layer in self.layers:
                    x = layer(x)
                return self.heads["x"](x) + nn.Bilinear(4, 4, 1)(x, x)

        model = Net()
        train(lambda: model(torch.randn(4, 2)).square().mean(), [torch.optim.SGD(model.parameters(), lr=0.1)])
    """)
    assert {"stem:out", "layers.0:out", "layers.1:grad", "heads.x:out", "Bilinear:out"} <= ran.addresses


def test_a_module_that_is_replaced_keeps_its_name(run) -> None:
    ran = run("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(2, 4), nn.Linear(4, 1)

            def forward(self, x):
                return self.head(self.body(x))

        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = lambda: model(torch.randn(4, 2)).square().mean()
        train(step, [optimizer], 2)
        model.head = nn.Linear(4, 1)
        model.extra = nn.Linear(1, 1)
        optimizer.add_param_group({"params": model.head.parameters()})
        train(step, [optimizer], 2)
        train(lambda: model.extra(model(torch.randn(4, 2))).square().mean(), [optimizer], 2)
    """)
    assert [row["step"] for row in ran.at("head:out")] == list(range(6))
    assert [row["step"] for row in ran.at("head:grad")] == list(range(6))
    assert [row["step"] for row in ran.at("extra:out")] == [4, 5]
    assert [event["module"] for event in ran.rank.events if event["kind"] == "module_replaced"] == ["head"]
    assert not [address for address in ran.addresses if address.startswith("parameter_")]


def test_a_shared_module_counts_its_calls(run) -> None:
    ran = run("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.shared = nn.Linear(3, 3)

            def forward(self, x):
                for _ in range(3):
                    x = self.shared(x).tanh()
                return x

        model = Net()
        train(lambda: model(torch.randn(4, 3)).square().mean(), [torch.optim.SGD(model.parameters(), lr=0.1)], 2)
    """)
    assert [(row["step"], row["call"]) for row in ran.at("shared:out")] == [(s, c) for s in (0, 1) for c in (0, 1, 2)]
    assert [(row["step"], row["call"]) for row in ran.at("shared:grad")] == [(s, c) for s in (0, 1) for c in (2, 1, 0)]


def test_outputs_of_many_shapes(run) -> None:
    ran = run("""
        @dataclass
        class Output:
            logits: torch.Tensor
            hidden: tuple
            note: str = "x"

        Pair = namedtuple("Pair", "left right")

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm = nn.LSTM(2, 4)
                self.pair = Pairs()
                self.none = Nothing()

            def forward(self, x):
                y, (h, c) = self.lstm(x)
                pair = self.pair(y)
                self.none(y)
                return Output(pair["a"] + pair["b"].left, (h, [c]))

        class Pairs(nn.Module):
            def forward(self, x):
                return {"a": x * 2, "b": Pair(x, None), "n": 3}

        class Nothing(nn.Module):
            def forward(self, x):
                return None

        model = Net()
        train(lambda: model(torch.randn(5, 3, 2)).logits.square().mean(), [torch.optim.SGD(model.parameters(), lr=0.1)], 2)
    """)
    assert {"lstm:out[0]", "lstm:out[1]", "lstm:out[2]", "pair:out[0]", "pair:out[1]"} <= ran.addresses
    assert {"model:out[0]", "model:out[1]", "model:out[2]", "model:grad[0]", "lstm:grad[0]"} <= ran.addresses
    assert not any(address.startswith("none:") for address in ran.addresses)
    assert {row["count"] for row in ran.at("lstm:out[0]")} == {5 * 3 * 4}
    assert {row["count"] for row in ran.at("lstm:out[2]")} == {1 * 3 * 4}


def test_parameters_of_no_module_have_names_too(run) -> None:
    ran = run("""
        weight = torch.randn(3, requires_grad=True)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD([weight, *model.parameters()], lr=0.1)
        train(lambda: model(weight * torch.randn(4, 3)).square().mean(), [optimizer])
    """)
    free = {address.partition(":")[0] for address in ran.addresses if address.startswith("parameter_")}
    assert len(free) == 1
    assert len(ran.at(f"{free.pop()}:grad")) == 3


def test_inputs_are_sites_where_they_are_watched(run) -> None:
    ran = run(
        """
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        train(lambda: model(torch.randn(8, 4)).square().mean(), [torch.optim.SGD(model.parameters(), lr=0.1)])
        """,
        watch=[("**:in", "nan"), ("**:grad_in", "nan")],
    )
    assert {"model:in", "0:in", "2:in", "2:grad_in"} <= ran.addresses
    assert len(ran.at("2:in")) == 3
    assert ran.norms("2:in") == ran.norms("1:out")
    assert ran.norms("2:grad_in") == ran.norms("1:grad")


def test_the_source_line_is_the_users(run) -> None:
    ran = run("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 1)

            def forward(self, x):
                return self.layer(x)  # here

        model = Net()
        train(lambda: model(torch.randn(4, 2)).square().mean(), [torch.optim.SGD(model.parameters(), lr=0.1)])
    """)
    (site,) = [site for site in ran.rank.sites.values() if site.address == "layer:out"]
    assert site.source is not None
    assert site.source.code == "return self.layer(x)  # here"


def test_a_wrapper_adds_nothing_to_names(foundry: Foundry, tmp_path: Path) -> None:
    """Torch's own and those of libraries alike; a wrapper that the user wrote is a part of the model."""
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "engines.py").write_text(
        "from torch import nn\n"
        "class Engine(nn.Module):\n"
        "    def __init__(self, module):\n"
        "        super().__init__()\n"
        "        self.module = module\n"
        "    def forward(self, x):\n"
        "        return self.module(x)\n"
    )
    script = """
    import sys
    sys.path.append("site-packages")
    import torch
    from torch import nn
    from engines import Engine
    class Own(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module
        def forward(self, x):
            return self.module(x)
    for wrap in (Engine, Own):
        model = wrap(nn.Sequential(nn.Linear(2, 1)))
        model(torch.ones(1, 2)).sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    """
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    assert {"0.weight:value", "0:out"} <= ran.addresses
    assert any(address.endswith("module.0.weight:value") for address in ran.addresses)
