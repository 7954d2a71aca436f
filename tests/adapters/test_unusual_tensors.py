"""Kinds of tensors and of programs that hooks could stumble over: all run as without Tensonde, and what is not seen is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import script

from launch import Foundry, Ran


@pytest.fixture
def run(foundry: Foundry, tmp_path: Path):
    def run(body: str, **options: object) -> Ran:
        bare = foundry.bare(script(body), tmp_path)
        assert bare.code == 0, bare.err
        done = foundry.watched(script(body), tmp_path, **options)  # type: ignore[arg-type]
        assert done.code == 0, done.err
        assert done.out == bare.out
        assert done.session["failures"] == {}
        return done

    return run


def test_complex_tensors(run) -> None:
    ran = run("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 4, dtype=torch.complex64)
                self.fourier = Fourier()

            def forward(self, x):
                return self.fourier(self.a(x)).abs()

        class Fourier(nn.Module):
            def forward(self, x):
                return torch.fft.fft(x).conj()

        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(3):
            out = model(torch.randn(5, 4, dtype=torch.complex64))
            optimizer.zero_grad(); out.mean().backward(); optimizer.step()
            print(norm(out), norm(model.a.weight.abs()))
    """)
    assert [row["count"] for row in ran.at("a:out")] == [20, 20, 20]
    assert len(ran.at("fourier:grad")) == 3
    assert len(ran.at("a.weight:grad")) == 3
    assert all(row["norm"] > 0 for row in ran.at("fourier:out"))


def test_quantized_tensors_are_digested_as_what_they_stand_for(run) -> None:
    ran = run("""
        warnings.simplefilter("ignore")
        class Quantize(nn.Module):
            def forward(self, x):
                return torch.quantize_per_tensor(x.detach(), 0.1, 0, torch.qint8)

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.quantize, self.a = Quantize(), nn.Linear(4, 4)

            def forward(self, x):
                return self.a(self.quantize(x).dequantize())

        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = model(torch.randn(2, 4)).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            print(loss.item())
    """)
    assert [row["count"] for row in ran.at("quantize:out")] == [8, 8, 8]
    assert all(row["absmax"] * 10 == pytest.approx(round(row["absmax"] * 10)) for row in ran.at("quantize:out"))
    assert len(ran.at("a:out")) == 3
    assert not [name for name in ran.session["coverage"]["not_watched"] if name.startswith("quantize")]


def test_tensor_subclasses(run) -> None:
    ran = run("""
        class Tagged(torch.Tensor):
            pass

        class Tag(nn.Module):
            def forward(self, x):
                return x.as_subclass(Tagged)

        model = nn.Sequential(nn.Linear(4, 4), Tag(), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = model(torch.randn(2, 4)).square().mean()
            print(type(loss).__name__, loss.item())
            optimizer.zero_grad(); loss.backward(); optimizer.step()
    """)
    assert len(ran.at("1:out")) == 3
    assert ran.norms("1:out") == ran.norms("0:out")
    assert len(ran.at("0:grad")) == 3


def test_integer_boolean_and_empty_outputs(run) -> None:
    ran = run("""
        class Odd(nn.Module):
            def forward(self, x):
                return x.argmax(1), x > 0, x[:0], x.half(), torch.tensor(2.5), torch.empty(0, 3, dtype=torch.int8)

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.odd = nn.Linear(4, 4), Odd()

            def forward(self, x):
                x = self.a(x)
                return x + self.odd(x)[4]

        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = model(torch.randn(2, 4)).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            print(loss.item())
    """)
    assert {row["count"] for row in ran.at("odd:out[2]")} == {0}
    assert {row["mean"] for row in ran.at("odd:out[4]")} == {2.5}
    assert len(ran.at("odd:out[1]")) == 3


def test_function_transforms_pass_through(run) -> None:
    ran = run("""
        from torch.func import functional_call, grad, vmap, jacrev
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        weights = {k: v.detach() for k, v in model.named_parameters()}
        def loss(weights, x):
            return functional_call(model, weights, (x,)).square().mean()
        for _ in range(3):
            x = torch.randn(5, 4)
            each = vmap(grad(loss), in_dims=(None, 0))(weights, x)
            print(norm(each["0.weight"]), norm(grad(loss)(weights, x)["2.bias"]), norm(jacrev(model)(x)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            out = model(torch.randn(5, 4)).mean()
            optimizer.zero_grad(); out.backward(); optimizer.step()
            print(out.item())
    """)
    assert len(ran.at("0:grad")) == 3


def test_symbolic_and_scripted_models(run) -> None:
    run("""
        warnings.simplefilter("ignore")
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)

            def forward(self, x):
                return self.b(torch.relu(self.a(x)))

        model = Net()
        x = torch.randn(3, 4)
        print(model(x).sum().item())
        graph = torch.fx.symbolic_trace(model)
        print(graph.code)
        traced, scripted = torch.jit.trace(model, x), torch.jit.script(model)
        print(traced.code, scripted.code)
        for other in (graph, traced, scripted):
            optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
            for _ in range(3):
                loss = other(x).square().mean()
                optimizer.zero_grad(); loss.backward(); optimizer.step()
            print(loss.item())
        exported = torch.export.export(model, (x,))
        print([node.name for node in exported.graph.nodes])
    """)


def test_compiled_models_have_the_same_graphs(run) -> None:
    ran = run("""
        import torch._dynamo
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)

            def forward(self, x):
                return self.b(torch.relu(self.a(x)))

        model = Net()
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            loss = compiled(torch.randn(6, 4)).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            print(loss.item())
        counters = torch._dynamo.utils.counters
        print(dict(counters["stats"]), dict(counters["graph_break"]), dict(counters["frames"]))
        part = torch.compile(model.a, backend="eager")
        print(norm(part(torch.randn(2, 4))), dict(counters["graph_break"]), counters["stats"]["unique_graphs"])
        why = torch._dynamo.explain(model)(torch.randn(6, 4))
        print(why.graph_count, why.graph_break_count)
    """)
    assert ran.session["steps"] == 4
    assert len(ran.at("a.weight:grad")) == 4


def test_a_module_with_surprises(run) -> None:
    """Outputs that are the input, a leaf, a parameter, not a tensor; recursion; exceptions that the user catches."""
    ran = run("""
        class Odd(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(4))
                self.same, self.depth = nn.Identity(), 0

            def forward(self, x, depth=2):
                if depth:
                    return self(x, depth - 1)
                try:
                    nn.Linear(3, 3)(x)
                except RuntimeError:
                    pass
                return self.same(x) * Give()(self.weight) + Text()("hello")

        class Give(nn.Module):
            def forward(self, x):
                return x

        class Text(nn.Module):
            def forward(self, x):
                return float(len(x))

        model = Odd()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = model(torch.randn(2, 4)).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            print(loss.item(), norm(model.weight))
    """)
    assert [row["call"] for row in ran.at("model:out", step=1)] == [0, 1, 2]
    assert len(ran.at("same:out")) == 3


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_data_workers_are_left_alone(run, context: str) -> None:
    ran = run(f"""
        from torch.utils.data import DataLoader, Dataset

        class Points(Dataset):
            def __init__(self):
                self.augment = nn.Sequential(nn.Dropout(0.5))
            def __len__(self):
                return 12
            def __getitem__(self, k):
                return self.augment(torch.full((4,), float(k)))

        def main():
            model = nn.Linear(4, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
            loader = DataLoader(Points(), batch_size=4, shuffle=True, num_workers=2, multiprocessing_context="{context}")
            for epoch in range(2):
                for x in loader:
                    loss = model(x).square().mean()
                    optimizer.zero_grad(); loss.backward(); optimizer.step()
                    print(loss.item())

        if __name__ == "__main__":
            main()
    """)
    assert len(ran.recording.ranks) == 1
    assert ran.session["steps"] == 6
    assert not any("augment" in address for address in ran.addresses)
    assert [event["epoch"] for event in ran.rank.events if event["kind"] == "epoch"] == [1, 2]


def test_calls_from_other_threads_pass_and_are_counted(run) -> None:
    ran = run("""
        import threading
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        shadow = copy.deepcopy(model)
        results = []
        for _ in range(3):
            loss = model(torch.randn(2, 4)).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            thread = threading.Thread(target=lambda: results.append(norm(shadow(torch.ones(2, 4)))))
            thread.start(); thread.join()
        print(results)
    """)
    assert ran.session["coverage"]["calls_from_other_threads"] == 3


def test_targets_that_the_compiler_hands_to_a_loss_have_no_values(run) -> None:
    ran = run("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding, self.head = nn.Embedding(8, 4), nn.Linear(4, 8)

            def forward(self, x, y):
                return nn.functional.cross_entropy(self.head(self.embedding(x)).view(-1, 8), y.reshape(-1))

        model = Net()
        compiled = torch.compile(model, backend="aot_eager")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            data = torch.randint(0, 8, (4, 9))
            loss = compiled(data[:, :-1], data[:, 1:])
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            print(loss.item())
    """)
    assert ran.err == ""
