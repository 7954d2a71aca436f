"""Function and dispatch modes of the user's: Tensonde lies never among them, and they never see what it computes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scripts import script

from launch import Foundry

PLAYER = '''
    import contextlib, json, threading
    from torch.overrides import TorchFunctionMode
    from torch.utils._device import DeviceContext
    from torch.utils._python_dispatch import TorchDispatchMode

    PROGRAMS = json.loads("""@PROGRAMS@""")
    log, held = [], []  # a generator that is collected would leave its mode at any time

    class Plain(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    class Calling(Plain):
        """Calls a module of its own while it handles an op."""
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if getattr(func, "__name__", "") == "relu":
                side(torch.ones(1, 3))
            return super().__torch_function__(func, types, args, kwargs)

    class Below(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            log.append(str(func))
            return func(*args, **(kwargs or {}))

    class Default:
        def __enter__(self):
            torch.set_default_device("cpu")
        def __exit__(self, *problem):
            torch.set_default_device(None)

    KINDS = {"plain": Plain, "calling": Calling, "below": Below, "device": lambda: torch.device("cpu"),
             "context": lambda: DeviceContext("cpu"), "default": Default}
    ours = lambda mode: type(mode).__module__.startswith("tensonde")

    def stack():
        found = [torch._C._get_function_stack_at(k) for k in range(torch._C._len_torch_function_stack())]
        below = [torch._C._get_dispatch_stack_at(k) for k in range(torch._C._len_torch_dispatch_stack())]
        assert sum(map(ours, found)) <= 1
        return [type(mode).__name__ for mode in found if not ours(mode)], [type(mode).__name__ for mode in below]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 1)
            self.inside = lambda: None
        def forward(self, x):
            self.inside()
            return self.b(F.relu(self.a(x)))

    model, side = Net(), nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def play(program):
        open_, loss = [], None
        def enter(kind):
            mode = KINDS[kind]()
            mode.__enter__()
            open_.append(mode)
        def leave(k):
            if open_:
                open_.pop(k % len(open_)).__exit__(None, None, None)
        def around(kind, act):
            with KINDS[kind]():
                return act()
        def holding(kind):
            with KINDS[kind]():
                yield
        def hold(kind):
            held.append(holding(kind))
            next(held[-1])
            open_.append(contextlib.ExitStack())
            open_[-1].callback(held[-1].close)
        def failing():
            raise ZeroDivisionError
        def forward(inside=lambda: None):
            nonlocal loss
            model.inside = inside
            loss = (model(torch.ones(2, 3)) * 2).square().mean()
        def backward(hook=None):
            if loss is not None and loss.requires_grad:
                optimizer.zero_grad()
                if hook:
                    loss.register_hook(hook)
                loss.backward()
        def manual():
            with torch.no_grad():
                for p in model.parameters():
                    if p.grad is not None:
                        p -= 0.01 * p.grad
                        p.grad = None
        for what, arg, number in program:
            try:
                if what == "enter": enter(arg)
                elif what == "leave": leave(number)
                elif what == "forward": forward()
                elif what == "forward in": around(arg, forward)
                elif what == "entered inside": forward(lambda: enter(arg))
                elif what == "left inside": forward(lambda: leave(number))
                elif what == "raised inside": around(arg, lambda: forward(failing))
                elif what == "in a mode inside": forward(lambda: around(arg, lambda: side(torch.ones(1, 3))))
                elif what == "backward": backward()
                elif what == "entered in backward": backward(lambda g: around(arg, lambda: g * 1))
                elif what == "left open in backward": backward(lambda g: KINDS[arg]().__enter__() and None)
                elif what == "entered in an op": torch.ones(1).apply_(lambda x: (enter(arg), x)[1])
                elif what == "left in an op": torch.ones(1).apply_(lambda x: (leave(number), x)[1])
                elif what == "called in an op": torch.ones(1).apply_(lambda x: (forward(), x)[1])
                elif what == "step": optimizer.step()
                elif what == "manual": manual()
                elif what == "look": bool(torch.isfinite(loss)) if loss is not None else None
                elif what == "held": hold(arg)
                elif what == "thread":
                    thread = threading.Thread(target=lambda: around(arg, lambda: side(torch.ones(1, 3))))
                    thread.start(); thread.join()
                elif what == "func": torch.func.vmap(torch.func.grad(lambda x: (x * x).sum()))(torch.ones(2, 3))
            except BaseException as problem:
                log.append(type(problem).__name__)
            log.append(f"{what}: {stack()} {torch.get_default_device()}")
        for _ in range(len(stack()[0])):
            torch._C._pop_torch_function_stack()
        for _ in range(len(stack()[1])):
            torch._C._pop_torch_dispatch_stack(None)
        try:
            torch.set_default_device(None)
        except BaseException as problem:
            log.append(type(problem).__name__)
        for _ in range(len(stack()[0])):
            torch._C._pop_torch_function_stack()
        torch._GLOBAL_DEVICE_CONTEXT.__dict__.clear()

    for program in PROGRAMS:
        log.append("program")
        play(program)
    log.append([p.tolist() for p in model.parameters()])
    leave(log)
'''
KINDS = ("plain", "calling", "below", "device", "context", "default")
ACTIONS = (
    "enter", "leave", "forward", "forward in", "entered inside", "left inside", "raised inside", "in a mode inside",
    "backward", "entered in backward", "left open in backward", "entered in an op", "left in an op",
    "called in an op", "step", "manual", "look", "held", "thread", "func",
)  # fmt: skip
ROUND = [["forward", "plain", 0], ["backward", "plain", 0], ["step", "plain", 0]]
PROGRAM = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.sampled_from(KINDS), st.integers(0, 3)), min_size=3, max_size=12
)


def compared(foundry: Foundry, folder: Path, programs: list, **options: object) -> None:
    text = script(PLAYER.replace("@PROGRAMS@", json.dumps(programs)))
    bare = foundry.bare(text, folder)
    assert bare.code == 0, bare.err
    begins = [k for k, entry in enumerate(bare.result) if entry == "program"]
    done = foundry.watched(text, folder, **options)  # type: ignore[arg-type]
    assert done.code == 0, done.err
    for number, (a, b) in enumerate(zip(bare.result, done.result, strict=False)):
        where = sum(begin <= number for begin in begins) - 1
        assert a == b, (programs[where], bare.result[begins[where] : number + 1], done.result[number])
    assert len(bare.result) == len(done.result)
    assert done.session["failures"] == {}


@settings(
    max_examples=8, deadline=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(programs=st.lists(PROGRAM, min_size=20, max_size=40), budget=st.sampled_from([0.05, None, 0]))
def test_modes_are_entered_and_left_in_any_order(foundry: Foundry, tmp_path: Path, programs: list, budget) -> None:
    compared(foundry, tmp_path, [ROUND * 3, *programs], budget=budget)


def same_output(foundry: Foundry, folder: Path, body: str, **options: object) -> str:
    bare = foundry.bare(script(body), folder)
    assert bare.code == 0, bare.err
    done = foundry.watched(script(body), folder, **options)  # type: ignore[arg-type]
    assert (done.code, done.out) == (0, bare.out)
    assert [line for line in done.err.splitlines() if not line.startswith("tensonde: hit: ")] == []
    assert done.session["failures"] == {}
    return done.out


def test_without_an_optimizer_no_mode_is_left_behind(foundry: Foundry, tmp_path: Path) -> None:
    same_output(
        foundry,
        tmp_path,
        """
        fc = nn.Linear(4, 1)
        for step in range(220):
            fc.zero_grad()
            loss = fc(torch.randn(8, 4)).square().mean()
            loss.backward()
            for p in fc.parameters():
                p.data.add_(-0.01 * p.grad)
            assert torch._C._len_torch_function_stack() <= 1
        print(fc.weight.tolist(), loss.item())
        """,
        budget=0.05,
    )


def test_a_device_block_between_steps_ends_where_it_ends(foundry: Foundry, tmp_path: Path) -> None:
    same_output(
        foundry,
        tmp_path,
        """
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            with torch.device("meta"):
                out = nn.Linear(4, 4)(torch.randn(2, 4))
                print(out.device, torch.randn(1).device)
            x = torch.randn(2, 4)
            optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
            print(x.device, torch.get_default_device(), model.weight.tolist())
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode() as fake:
            print(type(nn.Linear(4, 4)(torch.randn(2, 4))).__name__)
        torch.set_default_device("meta")
        print(nn.Linear(4, 4)(torch.randn(2, 4)).device)
        torch.set_default_device(None)
        for step in range(3):
            optimizer.zero_grad(); model(torch.randn(2, 4)).sum().backward(); optimizer.step()
        print(model.weight.tolist())
        """,
        budget=0.05,
    )


COUNTED = """
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    calls = []
    class Above(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            calls.append(func.__self__.__name__ if func.__name__ == "__get__" else func.__name__)
            return func(*args, **(kwargs or {}))
    class Below(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            calls.append(str(func))
            return func(*args, **(kwargs or {}))
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))
    def train(optimizer):
        for step in range(5):
            x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
            loss = F.cross_entropy(model(x), y)
            if step == 3:
                loss = loss * float("nan")  # the step is run again
            model.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if step == 3:
                continue
            if optimizer is not None:
                optimizer.step()
            else:
                with torch.no_grad():
                    for p in model.parameters():
                        p -= 0.01 * p.grad
            if step == 2:
                model.eval()
                with torch.no_grad():
                    model(x).argmax(1)
                model.train()
            loss.item() if torch.isfinite(loss) else None
    with @MODE@():
        train(@OPTIMIZER@)
    print(len(calls), calls)
"""


@pytest.mark.parametrize("budget", [0.05, None, 0])
@pytest.mark.parametrize("optimizer", ["torch.optim.Adam(model.parameters())", "None"])
@pytest.mark.parametrize("mode", ["Above", "Below"])
def test_modes_of_the_user_see_only_the_training(
    foundry: Foundry, tmp_path: Path, mode: str, optimizer: str, budget: float | None
) -> None:
    body = COUNTED.replace("@MODE@", mode).replace("@OPTIMIZER@", optimizer)
    assert int(same_output(foundry, tmp_path, body, budget=budget).split()[0]) > 100
