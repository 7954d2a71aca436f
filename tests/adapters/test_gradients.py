"""Gradients that are recorded are the gradients: each is compared with autograd's own, taken in the script."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch import Foundry, Ran
from scripts import script


@pytest.fixture
def run(foundry: Foundry, tmp_path: Path):
    def run(body: str, **options: object) -> Ran:
        done = foundry.watched(script(body), tmp_path, **options)  # type: ignore[arg-type]
        assert done.code == 0, done.err
        assert done.session["failures"] == {}
        return done

    return run


LOOP = """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen = []
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(6, 4)).square().mean().backward()
            optimizer.step()
        leave(truth)
"""


def check(ran: Ran, *addresses: str) -> None:
    """`truth` in the script: address → norms, step by step, in the order they came."""
    assert set(addresses) <= set(ran.result)
    for address in addresses:
        assert len(ran.result[address]) >= 3
        assert ran.norms(address) == pytest.approx(ran.result[address], rel=1e-5), address


NOTE = """
        truth = {}
        def note(address, tensor):
            tensor.register_hook(lambda grad: truth.setdefault(address, []).append(norm(grad)))
"""


def test_of_module_outputs_and_parameters(run) -> None:
    ran = run(
        NOTE
        + """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 5), nn.Linear(5, 2)

            def forward(self, x):
                y = self.a(x)
                note("a:grad", y)
                z = self.b(y.tanh())
                note("b:grad", z)
                return z

        model = Net()
        model.a.weight.register_post_accumulate_grad_hook(lambda p: truth.setdefault("a.weight:grad", []).append(norm(p.grad)))
    """
        + LOOP
    )
    check(ran, "a:grad", "b:grad", "a.weight:grad")
    assert ran.norms("model:grad") == ran.norms("b:grad")


def test_where_the_output_is_changed_in_place(run) -> None:
    """The gradient belongs to the value that the module gave, not to what was made of it."""
    ran = run(
        NOTE
        + """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
                self.act = nn.ReLU(inplace=True)

            def forward(self, x):
                y = self.a(x)
                note("a:grad", y)
                y = self.act(y)
                note("act:grad", y)
                z = self.b(y)
                note("b:grad", z)
                z += y
                z[:, 0].mul_(3.0)
                out = self.c(z)
                note("c:grad", out)
                out.view(-1)[::2].mul_(2.0)
                return out

        model = Net()
    """
        + LOOP
    )
    check(ran, "a:grad", "act:grad", "b:grad", "c:grad")
    assert ran.norms("a:grad") != ran.norms("act:grad")


def test_of_views_and_several_outputs(run) -> None:
    ran = run(
        NOTE
        + """
        class Split(nn.Module):
            def forward(self, x):
                left, right = x.chunk(2, dim=1)
                return left, x[:, 1:3].t()

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.split = nn.Linear(4, 4), Split()

            def forward(self, x):
                left, right = self.split(self.a(x))
                note("split:grad[0]", left)
                note("split:grad[1]", right)
                return left * 2 + right.t().exp()

        model = Net()
    """
        + LOOP
    )
    check(ran, "split:grad[0]", "split:grad[1]")


@pytest.mark.parametrize("reentrant", [True, False])
def test_with_activation_checkpointing(run, reentrant: bool) -> None:
    """Values are recorded once, although the forward runs twice; the gradients inside are seen, too."""
    ran = run(f"""
        from torch.utils.checkpoint import checkpoint

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.stem, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
                self.block = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))

            def forward(self, x):
                x = self.stem(x)
                return self.head(checkpoint(self.block, x, use_reentrant={reentrant}) if self.saving else self.block(x))

        model = Net()
        model.saving = True
        twin = copy.deepcopy(model)
        twin.saving = False
        truth, losses = {{}}, []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            x = torch.randn(6, 4)
            twin.load_state_dict(model.state_dict())
            y = twin.stem.forward(x)
            steps = [y]
            for layer in twin.block:
                steps.append(layer.forward(steps[-1]))
            loss = twin.head.forward(steps[-1]).square().mean()
            names = ["stem:grad", "block.0:grad", "block.1:grad", "block.2:grad"]
            for name, grad in zip(names, torch.autograd.grad(loss, steps)):
                truth.setdefault(name, []).append(norm(grad))
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            losses.append(loss.item())
            optimizer.step()
        truth["losses"] = losses
        leave(truth)
    """)
    prefix = "" if "stem:out" in ran.addresses else "model."
    for name in ("stem:grad", "block.0:grad", "block.1:grad", "block.2:grad"):
        assert ran.norms(prefix + name) == pytest.approx(ran.result[name], rel=1e-4), name
    for name in ("stem", "block", "block.0", "block.2", "head"):
        assert [row["step"] for row in ran.at(f"{prefix}{name}:out")] == [0, 1, 2], name
    assert [value for _, value in ran.scalars("loss")] == pytest.approx(ran.result["losses"])
    assert ran.session["steps"] == 3


def test_of_sparse_embeddings(run) -> None:
    ran = run("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.head = nn.Embedding(20, 4, sparse=True), nn.Linear(4, 1)

            def forward(self, x):
                return self.head(self.words(x).mean(1))

        model = Net()
        sparse = torch.optim.SparseAdam(model.words.parameters(), lr=0.1)
        dense = torch.optim.SGD(model.head.parameters(), lr=0.1)
        truth = {"words.weight:grad": []}
        for _ in range(3):
            sparse.zero_grad(); dense.zero_grad()
            model(torch.randint(0, 20, (4, 6))).square().mean().backward()
            truth["words.weight:grad"].append(norm(model.words.weight.grad.to_dense()))
            sparse.step(); dense.step()
        leave(truth)
    """)
    check(ran, "words.weight:grad")


def test_updates_are_what_the_optimizer_changed(run) -> None:
    ran = run(
        """
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        truth = {"0.weight:update": [], "0.weight:value": []}
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(6, 4)).square().mean().backward()
            before = model[0].weight.detach().clone()
            optimizer.step()
            truth["0.weight:update"].append(norm(model[0].weight - before))
            truth["0.weight:value"].append(norm(model[0].weight))
        leave(truth)
    """,
        watch=[("**.weight:update", "nan")],
    )
    check(ran, "0.weight:update", "0.weight:value")


def test_of_parameters_that_were_swapped_in_the_optimizer(run) -> None:
    ran = run("""
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        truth = {"weight:grad": []}
        for step in range(6):
            if step == 3:
                model.weight = nn.Parameter(torch.full((1, 4), 100.0))
                optimizer.param_groups[0]["params"] = list(model.parameters())
            optimizer.zero_grad()
            model(torch.randn(6, 4)).square().mean().backward()
            truth["weight:grad"].append(norm(model.weight.grad))
            optimizer.step()
        leave(truth)
    """)
    check(ran, "weight:grad")


def test_double_backward(run) -> None:
    """The gradient penalty: the first gradient is taken with autograd.grad, and the loss is the whole."""
    ran = run("""
        critic = nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 1))
        optimizer = torch.optim.Adam(critic.parameters(), lr=0.01)
        truth = {"loss:value": [], "0.weight:grad": []}
        for _ in range(4):
            x = torch.randn(8, 2, requires_grad=True)
            (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
            loss = (slope.norm(2, dim=1) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            truth["loss:value"].append(abs(loss.item()))
            truth["0.weight:grad"].append(norm(critic[0].weight.grad))
            optimizer.step()
        leave(truth)
    """)
    check(ran, "loss:value", "0.weight:grad")
    assert ran.session["steps"] == 4
