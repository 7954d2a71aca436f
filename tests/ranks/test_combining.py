"""What the ranks make of their gradients, by sketches of what each has computed; and steps in which they do not do the same."""

from __future__ import annotations

import linecache
from pathlib import Path

import numpy as np
import pytest
from ranks_program import program
from test_ranks import BY_HAND, PARTS, WRAPPED, alarms

from launch import Foundry
from tensonde.diagnose.analysis.mixing import _mix
from tensonde.program.habits import remainders_of_hashes
from tensonde.program.on_some_ranks import under_rank

EVERY = "for p in model.parameters()"
SOME = "for k, p in enumerate(model.parameters()):\n        dist.all_reduce(p.grad)\n        if k > 1:\n            p.grad /= world"
OWNER = PARTS.replace(
    "average(model, world)", "[dist.reduce(p.grad, dst=(k + OFFSET) % world) for k, p in enumerate(whole)]"
)
ACCUMULATED = BY_HAND.replace(
    "    loss.backward()\n", "    loss.backward()\n    CLEAR\n    loss_of(forward(xb.flip(0)), yb.flip(0)).backward()\n"
)
PROBE = WRAPPED.replace(
    "opt =", "probe = nn.Linear(6, 1)\nown = torch.optim.SGD(probe.parameters(), lr=0.1)\nopt =", 1
).replace(
    "#REDUCE",
    "if rank == 0:\n        probe(xb).square().mean().backward()\n        own.step()\n        own.zero_grad()",
)
WRITTEN = WRAPPED.replace(
    "    opt.step()",
    "    opt.step()\n    if CONDITION:\n        with torch.no_grad():\n            [p.mul_(0.9) for p in model.parameters()]",
)
COUNTED = """
class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x, count):
        return self.net(x) * (count / count)

""" + WRAPPED.replace("DDP(net())", "DDP(Counted())").replace("forward(xb)", "forward(xb, torch.tensor(step + 1.0))")
NAMED = {
    "rank-left-out": (BY_HAND.replace("#REDUCE", f"[dist.broadcast(p.grad, src=0) {EVERY}]"), "dist.broadcast(p.grad"),
    "combined-unevenly": (BY_HAND.replace("#REDUCE", SOME), "dist.all_reduce(p.grad)"),
    "gradients-reduced-to-one-rank of another owner": (OWNER.replace("OFFSET", "1"), "dist.reduce(p.grad"),
    "averaged-twice by hand": (
        BY_HAND.replace("#REDUCE", f"average(model, world)\n    [p.grad.div_(world) {EVERY}]"),
        "p.grad",
    ),
    "gradients-discarded of the last pass only": (
        ACCUMULATED.replace("CLEAR", "opt.zero_grad()").replace("#REDUCE", "average(model, world)"),
        "opt.zero_grad()",
    ),
    "ranks-part-ways": (
        WRAPPED.replace("    opt.step()", "    if step != 4 or rank == 0:\n        opt.step()"),
        "if step != 4",
    ),
    "replicas-drift written": (WRITTEN.replace("CONDITION", "step % 4 == 3 and rank == 0"), "with torch.no_grad()"),
}  # fmt: skip
LEFT_ALONE = {
    "the mean": BY_HAND.replace("#REDUCE", f"[dist.all_reduce(p.grad, op=dist.ReduceOp.SUM) {EVERY}]\n    [p.grad.div_(world) {EVERY}]"),
    "a sum of sums": BY_HAND.replace("loss_of(forward(xb), yb)", "loss_of(forward(xb), yb, reduction='sum') / 16").replace(
        "#REDUCE", f"[dist.all_reduce(p.grad) {EVERY}]"
    ),
    "accumulated": ACCUMULATED.replace("CLEAR", "pass").replace("#REDUCE", "average(model, world)"),
    "something of its own on rank 0": PROBE,
    "a number that the ranks have in common": COUNTED,
    "written on all ranks": WRITTEN.replace("CONDITION", "step % 4 == 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMED)
def test_what_is_wrong_with_it_is_named(
    case: str, foundry: Foundry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, code = NAMED[case]
    ran = foundry.watched(program(body), tmp_path)
    assert ran.code == 0, ran.err
    monkeypatch.chdir(ran.cwd)
    linecache.clearcache()  # of scripts of the same name
    found = alarms(ran)
    assert [f.rule for f in found[:1]] == [case.partition(" ")[0]], [(f.rule, f.title) for f in found]
    assert found[0].source is not None
    assert code in found[0].source.code


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_what_is_right_is_left_alone(
    case: str, foundry: Foundry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = foundry.watched(program(LEFT_ALONE[case]), tmp_path)
    assert ran.code == 0, ran.err
    monkeypatch.chdir(ran.cwd)
    linecache.clearcache()  # of scripts of the same name
    assert [(f.rule, f.title) for f in alarms(ran)] == []


def test_what_a_gradient_is_made_of() -> None:
    own = np.random.default_rng(0).normal(size=(2, 8))
    last = np.random.default_rng(1).normal(size=(2, 8))
    assert _mix(own.sum(0), own, None).factor == pytest.approx(2)
    assert _mix(last.mean(0), own, last).last
    assert _mix(0.3 * own[0] + 0.7 * own[1], own, None).shares == pytest.approx((0.3, 0.7))
    nothing = _mix(np.abs(own).max(0), own, None)
    assert nothing.factor is None
    assert nothing.shares is None
    assert not nothing.last


def test_statements_of_some_ranks(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        "def main(rank):\n"
        "    for x in data:\n"
        "        loss.backward()\n"
        "        if rank == 0:\n"
        "            print(loss.item())\n"
        "        if rank == 0 and x:\n"
        "            print(x)\n"
        "            average.swap()\n"
    )
    assert under_rank(str(path), 3) == 8


def test_remainders_of_hashes(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("a = hash(word) % 8\nb = hash(word)\nc = crc32(word) % 8\nd = (hash(word) + 1) & 7\n")
    assert remainders_of_hashes(str(path)) == [1, 4]
