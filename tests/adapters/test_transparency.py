"""Nothing of Tensonde is to be found on the user's objects, nothing is kept alive, and the user's own hooks see the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import script

from launch import Foundry, Ran


@pytest.fixture
def both(foundry: Foundry, tmp_path: Path):
    """Runs a script bare and watched; what it prints must be the same."""

    def both(body: str, **options: object) -> Ran:
        bare = foundry.bare(script(body), tmp_path)
        assert bare.code == 0, bare.err
        done = foundry.watched(script(body), tmp_path, **options)  # type: ignore[arg-type]
        assert done.code == 0, done.err
        assert done.out == bare.out
        assert done.session["failures"] == {}
        return done

    return both


def test_models_and_optimizers_have_no_new_attributes(both) -> None:
    both("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.norm, self.b = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)
            def forward(self, x):
                return self.b(self.norm(self.a(x)))

        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            out = model(torch.randn(4, 4))
            optimizer.zero_grad(); out.square().mean().backward(); optimizer.step()
        for thing in (model, model.a, optimizer, model.a.weight, out):
            print(type(thing).__name__, sorted(vars(thing)))
        print(model._forward_hooks, model.a._backward_hooks, model.a.weight._backward_hooks)
        print(sorted(optimizer.state_dict()), list(model.state_dict()), optimizer._optimizer_step_pre_hooks)
        print(model, repr(optimizer))
        twin = copy.deepcopy(model)
        other = pickle.loads(pickle.dumps(model))
        x = torch.ones(4, 4)
        print(torch.equal(twin(x), model(x)), torch.equal(other(x), model(x)))
        print(sorted(vars(twin)), sorted(vars(other.a)))
        torch.save(model, "model.pt")
        loaded = torch.load("model.pt", weights_only=False)
        print(torch.equal(loaded.a.weight, model.a.weight))
        try:
            copy.deepcopy(out)
        except RuntimeError as problem:
            print(str(problem)[:60])
        import inspect
        for function in (nn.Module.__call__, torch.autograd.backward, torch.autograd.grad, torch.optim.Optimizer.__init__):
            print(list(inspect.signature(function).parameters))
    """)


def test_the_users_hooks_see_the_same_in_the_same_order(both) -> None:
    both("""
        order = []
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
        for name, module in model.named_modules():
            module.register_forward_pre_hook(lambda m, a, n=name: order.append(("pre", n)))
            module.register_forward_hook(lambda m, a, o, n=name: order.append(("out", n, round(norm(o), 6))))
            module.register_full_backward_hook(lambda m, gi, go, n=name: order.append(("back", n, round(norm(go[0]), 6))))
        nn.modules.module.register_module_forward_hook(lambda m, a, o: order.append(("global", type(m).__name__)))
        for name, p in model.named_parameters():
            p.register_hook(lambda g, n=name: order.append(("param", n)))
            p.register_post_accumulate_grad_hook(lambda p, n=name: order.append(("accumulated", n)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.register_step_pre_hook(lambda *a: order.append("step pre"))
        optimizer.register_step_post_hook(lambda *a: order.append("step post"))
        for _ in range(2):
            out = model(torch.randn(4, 4))
            out.register_hook(lambda g: order.append(("tensor", round(norm(g), 6))))
            handle = out.register_hook(lambda g: order.append("removed"))
            handle.remove()
            out.retain_grad()
            optimizer.zero_grad(); out.square().mean().backward(); optimizer.step()
            order.append(round(norm(out.grad), 6))
        for entry in order:
            print(entry)
    """)


def test_hooks_that_change_outputs_are_followed(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(
        script("""
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        model[0].register_forward_hook(lambda m, a, o: o * 0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad(); model(torch.randn(4, 4)).square().mean().backward(); optimizer.step()
    """),
        tmp_path,
    )
    assert ran.norms("0:out") == [0, 0, 0]


@pytest.mark.parametrize("budget", [None, 0.0])
def test_nothing_is_kept_alive(both, budget: float | None) -> None:
    both(
        """
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        optimizer = torch.optim.Adam(model.parameters())
        refs = {"model": weakref.ref(model), "weight": weakref.ref(model[0].weight), "optimizer": weakref.ref(optimizer)}
        for _ in range(3):
            out = model(torch.randn(4, 4))
            loss = out.square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        refs |= {"out": weakref.ref(out), "loss": weakref.ref(loss), "grad": weakref.ref(model[0].weight.grad)}
        def alive():
            gc.collect()
            return [name for name, ref in refs.items() if ref() is not None]
        del out, loss
        print(alive())
        optimizer.zero_grad(set_to_none=True)
        print(alive())
        del optimizer
        print(alive())
        del model
        print(alive())
    """,
        budget=budget,
    )


def test_activations_die_as_soon_as_without_tensonde(both) -> None:
    """No tensor outlives its last use by the user, also without the garbage collector's help."""
    both("""
        gc.disable()
        alive = []
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)
            def forward(self, x):
                hidden = self.a(x).relu_()
                refs.append(weakref.ref(hidden))
                return self.b(hidden)

        refs = []
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            loss = model(torch.randn(4, 4)).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            del loss
            alive.append(sum(ref() is not None for ref in refs))
        print(alive)
    """)


def test_many_models_do_not_pile_up(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(
        script("""
        from tensonde.adapters.torch.seams import install
        def trial(k):
            model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(2):
                optimizer.zero_grad(); model(torch.randn(4, 4)).square().mean().backward(); optimizer.step()
        sizes = []
        for k in range(50):
            trial(k)
            gc.collect()
            watcher = install.current()
            roster, names = watcher.state.roster, watcher.state.parameters
            sizes.append([len(roster.entries), len(names.names), len(watcher.parameters.plans),
                          len(names.trained), len(watcher.session.sites), len(roster.roots)])
        leave(sizes)
    """),
        tmp_path,
    )
    assert ran.code == 0, ran.err
    assert ran.session["steps"] == 100
    first, last = ran.result[1], ran.result[-1]
    assert last == first, "entries, names, plans, trained, sites, roots"


def test_a_parameter_that_became_the_result_of_ops_is_asked_for_no_gradient(both) -> None:
    """As `higher` unrolls an inner loop: torch warns whoever reads `.grad` of such a tensor."""
    both(
        """
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *rest: print("warned", str(message)[:60])
        model, inner = nn.Linear(2, 1), nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            x, rate = torch.randn(8, 2), 0.1
            inner._parameters.update(weight=model.weight * 1.0, bias=model.bias * 1.0)
            loss = inner(x).square().mean()
            steps = torch.autograd.grad(loss, [inner.weight, inner.bias], create_graph=True)
            inner._parameters.update(weight=inner.weight - rate * steps[0], bias=inner.bias - rate * steps[1])
            outer = inner(x).square().mean()
            optimizer.zero_grad(); outer.backward(); optimizer.step()
        print(model.weight.tolist())
        """,
        budget=None,
    )


def test_a_part_that_is_called_before_its_module_is_made(both) -> None:
    both("""
        class Model(nn.Module):
            def __init__(self, scale):
                first = scale(torch.randn(4, 2))  # `self` has no parts yet
                super().__init__()
                self.first, self.layer = first, nn.Linear(2, 1)
            def forward(self, x):
                return self.layer(x)

        model = Model(nn.LayerNorm(2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = model(torch.randn(8, 2)).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        print(model.layer.weight.tolist())
    """)
