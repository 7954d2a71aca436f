"""Which step it is: one optimizer or several, skipped, repeated or absent."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import script

from launch import Foundry, Ran


@pytest.fixture
def run(foundry: Foundry, tmp_path: Path):
    def run(body: str, **options: object) -> Ran:
        done = foundry.watched(script(body), tmp_path, **options)  # type: ignore[arg-type]
        assert done.code == 0, done.err
        assert done.session["failures"] == {}
        return done

    return run


def steps_of(ran: Ran, address: str) -> list[int]:
    return [row["step"] for row in ran.at(address)]


def test_gradient_accumulation_is_one_step(run) -> None:
    ran = run("""
        model = nn.Sequential(nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for micro in range(12):
            loss = model(torch.randn(4, 4)).square().mean()
            loss.backward()
            losses.append(loss.item())
            if micro % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
        leave(losses)
    """)
    assert ran.session["steps"] == 4
    assert [(r["step"], r["call"]) for r in ran.at("0:out")] == [(s, c) for s in range(4) for c in range(3)]
    assert steps_of(ran, "0.weight:grad") == [0, 1, 2, 3]
    assert [value for _, value in ran.scalars("loss")] == pytest.approx(ran.result)


def test_losses_and_learning_rates_are_scalars(run) -> None:
    ran = run("""
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        losses = []
        for _ in range(5):
            loss = model(torch.randn(4, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        leave(losses)
    """)
    assert ran.scalars("loss") == [(step, pytest.approx(loss)) for step, loss in enumerate(ran.result)]
    assert ran.scalars("lr/0") == [(step, pytest.approx(0.1 * 0.5**step)) for step in range(5)]


def test_two_optimizers_that_take_turns_are_one_step(run) -> None:
    ran = run("""
        G, D = nn.Linear(2, 4), nn.Linear(4, 1)
        og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
        for _ in range(4):
            od.zero_grad(); D(G(torch.randn(8, 2)).detach()).mean().backward(); od.step()
            og.zero_grad(); (-D(G(torch.randn(8, 2))).mean()).backward(); og.step()
    """)
    assert ran.session["steps"] == 4
    assert steps_of(ran, "G.weight:grad") == steps_of(ran, "D.weight:grad") == [0, 1, 2, 3]
    assert [(r["step"], r["call"]) for r in ran.at("D:out")] == [(s, c) for s in range(4) for c in (0, 1)]


def test_three_critic_steps_a_generator_step(run) -> None:
    """A round ends when an optimizer is about to step again: what the critic saw since belongs to the new step."""
    ran = run("""
        G, C = nn.Linear(2, 4), nn.Linear(4, 1)
        og, oc = torch.optim.Adam(G.parameters()), torch.optim.Adam(C.parameters())
        critic = []
        for _ in range(4):
            for _ in range(3):
                loss = C(G(torch.randn(8, 2)).detach()).mean()
                oc.zero_grad(); loss.backward(); oc.step()
                critic.append(loss.item())
            og.zero_grad(); (-C(G(torch.randn(8, 2))).mean()).backward(); og.step()
        leave(critic)
    """)
    assert ran.session["steps"] == 12
    assert steps_of(ran, "C.weight:grad") == list(range(12))
    assert steps_of(ran, "G.weight:grad") == [2, 5, 8, 11]
    first = {row["step"]: row["mean"] for row in reversed(ran.at("loss:value"))}
    assert [first[step] for step in range(12)] == pytest.approx(ran.result)
    calls = [(row["step"], row["call"]) for row in ran.at("C:out")]
    assert calls == [(s, c) for s in range(12) for c in range(2 if s % 3 == 2 else 1)]


def test_one_backward_for_two_optimizers(run) -> None:
    ran = run("""
        body, head = nn.Linear(2, 4), nn.Linear(4, 1)
        first, second = torch.optim.Adam(body.parameters()), torch.optim.SGD(head.parameters(), lr=0.1)
        for _ in range(4):
            loss = head(body(torch.randn(8, 2))).mean()
            first.zero_grad(); second.zero_grad(); loss.backward(); first.step(); second.step()
    """)
    assert ran.session["steps"] == 4
    assert steps_of(ran, "loss:value") == [0, 1, 2, 3]


def test_steps_that_a_scaler_skips_are_steps(run) -> None:
    ran = run("""
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        losses = []
        for step in range(6):
            x = torch.randn(4, 4)
            if step == 2:
                x[0] = float("inf")
            loss = model(x).square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        leave(losses)
    """)
    assert ran.session["steps"] == 6
    assert ran.scalars("skipped") == [(2, 1.0)]
    assert steps_of(ran, "weight:value") == [0, 1, 3, 4, 5]
    finite = [(step, value) for step, value in ran.scalars("loss") if step != 2]
    assert finite == [(step, pytest.approx(loss)) for step, loss in enumerate(ran.result) if step != 2]


def test_a_closure_is_part_of_its_step(run) -> None:
    ran = run("""
        model = nn.Linear(2, 1)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
        x = torch.randn(8, 2)
        calls = []
        def closure():
            optimizer.zero_grad()
            loss = (model(x) - 1).square().mean()
            loss.backward()
            calls.append(loss.item())
            return loss
        per_step = []
        for _ in range(3):
            before = len(calls)
            optimizer.step(closure)
            per_step.append(len(calls) - before)
        leave(per_step)
    """)
    assert ran.session["steps"] == 3
    assert [steps_of(ran, "model:out").count(step) for step in range(3)] == ran.result
    assert steps_of(ran, "weight:grad") == steps_of(ran, "weight:value") == [0, 1, 2]
    assert {row["phase"] for row in ran.at("model:out")} == {1}
    assert {row["phase"] for row in ran.at("model:grad")} == {2}


def test_training_without_an_optimizer(run) -> None:
    ran = run("""
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        norms = []
        for _ in range(5):
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            norms.append(norm(model[0].weight.grad))
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
        leave(norms)
    """)
    assert ran.session["steps"] in (4, 5)
    assert steps_of(ran, "0:out") == list(range(5))
    assert steps_of(ran, "0:grad") == list(range(5))
    assert ran.norms("0.weight:grad") == pytest.approx(ran.result)


def test_an_optimizer_that_is_never_used(run) -> None:
    ran = run("""
        model, spare = nn.Linear(4, 1), nn.Linear(4, 1)
        unused = torch.optim.SGD(spare.parameters(), lr=0.1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(7):
            loss = model(torch.randn(4, 4)).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
    """)
    assert ran.session["steps"] == 7
    assert steps_of(ran, "loss:value") == list(range(7))


def test_an_optimizer_that_went_away(run) -> None:
    """Warm-up of the head with one optimizer, then all of it with another."""
    ran = run("""
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        def phase(parameters, steps):
            optimizer = torch.optim.SGD(parameters, lr=0.1)
            for _ in range(steps):
                loss = model(torch.randn(4, 4)).square().mean()
                optimizer.zero_grad(); loss.backward(); optimizer.step()
        phase(model[1].parameters(), 3)
        phase(model.parameters(), 4)
    """)
    assert ran.session["steps"] == 7
    assert steps_of(ran, "loss:value") == list(range(7))
    assert steps_of(ran, "0.weight:grad") == [3, 4, 5, 6]


def test_evaluation_does_not_crowd_out_training(run) -> None:
    ran = run("""
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        norms = []
        for step in range(4):
            model.eval()
            with torch.no_grad() if step % 2 else torch.inference_mode():
                for _ in range(100):
                    model(torch.randn(2, 4))
            model.train()
            out = model(torch.randn(8, 4))
            norms.append(norm(out))
            optimizer.zero_grad(); out.square().mean().backward(); optimizer.step()
        leave(norms)
    """)
    trained = [row for row in ran.at("model:out") if row["count"] == 8]
    assert [row["step"] for row in trained] == [0, 1, 2, 3]
    assert [row["norm"] for row in trained] == pytest.approx(ran.result)
    assert steps_of(ran, "0:grad") == [0, 1, 2, 3]
    assert len(ran.at("model:out")) <= 8


def test_a_limit_on_steps_ends_the_training_cleanly(foundry: Foundry, tmp_path: Path) -> None:
    body = """
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        try:
            for _ in range(100):
                optimizer.zero_grad(); model(torch.randn(4, 4)).square().mean().backward(); optimizer.step()
        finally:
            print("cleaned up")
    """
    ran = foundry.watched(script(body), tmp_path, steps=3)
    assert (ran.code, ran.out) == (0, "cleaned up\n")
    assert ran.session["steps"] == 3
    assert "Traceback" not in ran.err
