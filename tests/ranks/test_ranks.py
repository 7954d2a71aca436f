"""Several ranks of one training: what parts them is named, healthy ones are left alone, and no weight changes.

The ranks are forked, and talk through gloo.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks_program import program

from launch import Foundry, Ran
from tensonde.diagnose.diagnose import diagnose
from tensonde.model.finding import Finding
from tensonde.store.collectives import read_collectives
from tensonde.store.format import FACTS
from tensonde.store.query import query

LOOP = """
for step in range(12):
    xb, yb = x[step * 8 : step * 8 + 8], y[step * 8 : step * 8 + 8]
    loss = loss_of(forward(xb), yb)
    opt.zero_grad()
    loss.backward()
    #REDUCE
    opt.step()
"""

WRAPPED = "model = DDP(net())\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\nforward = model\n" + LOOP
BY_HAND = "model = net()\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\nforward = model\n" + LOOP

PARTS = (
    """
model = net()
whole = list(model.parameters())
opt = torch.optim.SGD(whole[rank::world], lr=0.1)
forward = model
"""
    + LOOP.replace("opt.zero_grad", "model.zero_grad").replace("#REDUCE", "average(model, world)")
    + """
    with torch.no_grad():
        for k, p in enumerate(whole):
            dist.broadcast(p, src=k % world)
"""
)
"""Each rank's optimizer has a part of the parameters."""

PARTED = {
    "gradients-reduced-to-one-rank": (
        BY_HAND.replace("#REDUCE", "[dist.reduce(p.grad, dst=0) for p in model.parameters()]"),
        "dist.reduce(p.grad, dst=0)",
    ),
    "gradients-not-added-up": (
        BY_HAND.replace("#REDUCE", "[dist.all_reduce(p.grad, op=dist.ReduceOp.MAX) for p in model.parameters()]"),
        "dist.ReduceOp.MAX",
    ),
    "shares-overlap seeds": (
        """
whole = TensorDataset(*data(3))
model = DDP(net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
dealer = DistributedSampler(whole, seed=rank)
for xb, yb in DataLoader(whole, batch_size=8, sampler=dealer):
    opt.zero_grad()
    loss_of(model(xb), yb).backward()
    opt.step()
""",
        "seed=rank",
    ),
    "ranks-start-differently loaded": (
        WRAPPED.replace(
            "forward = model",
            "torch.manual_seed(rank)\nmodel.module.load_state_dict(net().state_dict())\nforward = model",
        ),
        "load_state_dict",
    ),
    "replicas-drift copied": (
        BY_HAND.replace("#REDUCE", "[dist.all_reduce(p.grad / world) for p in model.parameters()]"),
        "dist.all_reduce(p.grad / world)",
    ),
    "ranks-train-alone": (
        """
whole = TensorDataset(*data(3))
model = net()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for xb, yb in DataLoader(whole, batch_size=8, sampler=DistributedSampler(whole)):
    opt.zero_grad()
    loss = loss_of(model(xb), yb)
    loss.backward()
    opt.step()
    dist.all_reduce(loss.detach())
""",
        "loss.backward()",
    ),
    "ranks-start-differently in shards": (
        """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
torch.manual_seed(5 + rank)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
forward = model
"""
        + LOOP
        + "\nmodel = nn.Linear(1, 1)\n",
        "torch.manual_seed(5 + rank)",
    ),
    "ranks-start-differently": (
        "torch.manual_seed(rank)\n" + BY_HAND.replace("#REDUCE", "average(model, world)"),
        "opt = torch.optim",
    ),
    "gradients-summed-over-ranks": (
        BY_HAND.replace("#REDUCE", "[dist.all_reduce(p.grad) for p in model.parameters()]"),
        "opt.step()",
    ),
    "replicas-drift bypassed": (WRAPPED.replace("forward = model", "forward = model.module"), "forward(xb)"),
    "replicas-drift later": (
        WRAPPED.replace("opt =", "model.module.append(nn.Linear(2, 2))\nopt =", 1),
        "model = DDP(net())",
    ),
    "ranks-start-differently later": (
        WRAPPED.replace("opt =", "torch.manual_seed(rank)\nmodel.module.append(nn.Linear(2, 2))\nopt =", 1),
        "model = DDP(net())",
    ),
    "replicas-drift unfrozen": (
        WRAPPED.replace(
            "model = DDP(net())", "inner = net()\ninner[0].requires_grad_(False)\nmodel = DDP(inner)"
        ).replace("    xb, yb", "    if step == 4:\n        inner[0].requires_grad_(True)\n    xb, yb", 1),
        "requires_grad_(True)",
    ),
    "numbered-differently": (
        WRAPPED.replace(
            "model =",
            "words = ['a', 'b', 'c', 'd', 'e'][:: 1 - 2 * rank]\nvocab = {w: i for i, w in enumerate(words)}\nmodel =",
            1,
        ),
        "vocab = {",
    ),
    "written-by-every-rank": (WRAPPED + "\ntorch.save(model.state_dict(), 'model.pt')\n", "torch.save("),
    "mean-summed-over-ranks": (
        WRAPPED
        + "\naccuracy = (model(x).argmax(1) == y).float().mean()\ndist.all_reduce(accuracy)\nprint(f'{accuracy:.2f}')\n",
        "dist.all_reduce(accuracy)",
    ),
    "replicas-drift clipped": (
        WRAPPED.replace("#REDUCE", "model.module[0].weight.grad.mul_(loss.item())"),
        "weight.grad.mul_(",
    ),
    "buffers-not-synchronised": (
        WRAPPED.replace("DDP(net())", "DDP(net(), broadcast_buffers=False)") + "\nmodel.eval()\n",
        "broadcast_buffers=False",
    ),
    "same-samples-on-every-rank": (
        """
loader = DataLoader(TensorDataset(*data(3)), batch_size=16, shuffle=True)
model = DDP(net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for xb, yb in loader:
        loss = loss_of(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
        "loader = DataLoader(",
    ),
    "sampler-epoch-never-set": (
        """
set_ = TensorDataset(*data(3))
loader = DataLoader(set_, batch_size=16, sampler=DistributedSampler(set_))
model = DDP(net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    model.train()
    for xb, yb in loader:
        loss = loss_of(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
        "model.train()",
    ),
}

PARTED |= {
    "learning-rates-differ": (WRAPPED.replace("lr=0.1", "lr=0.1 * (rank + 1)"), "opt = torch.optim"),
    "clipped-before-reduced": (
        BY_HAND.replace("#REDUCE", "nn.utils.clip_grad_norm_(model.parameters(), 0.05)\n    average(model, world)"),
        "clip_grad_norm_",
    ),
    "weights-summed-over-ranks": (
        BY_HAND
        + "    if step == 5:\n        with torch.no_grad():\n            [dist.all_reduce(p) for p in model.parameters()]\n    x = x\n",
        "x = x",
    ),
    "replicas-drift left out": (
        BY_HAND.replace("#REDUCE", "[dist.all_reduce(p.grad) for p in model.parameters() if p.dim() > 1]"),
        "dist.all_reduce(p.grad)",
    ),
    "collectives-differ": (
        BY_HAND.replace("#REDUCE", "average(model, world)")
        + "        dist.all_reduce(torch.zeros(2), op=dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)\n".replace(
            "        ", "    ", 1
        ),
        "dist.all_reduce(torch.zeros(2)",
    ),
    "stage-without-gradients": (
        """
model = nn.Linear(6, 8) if rank == 0 else nn.Linear(8, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    opt.zero_grad()
    if rank == 0:
        dist.send(model(x[:8]).detach(), dst=1)
    else:
        h = torch.empty(8, 8)
        dist.recv(h, src=0)
        loss_of(model(h), y[:8]).backward()
    opt.step()
""",
        "dist.send(",
    ),
}

PARTED |= {
    "averaged-twice": (
        WRAPPED.replace("#REDUCE", "for p in model.parameters():\n        p.grad /= world"),
        "p.grad /= world",
    ),
    "reduction-not-awaited": (
        BY_HAND.replace("#REDUCE", "[dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]"),
        "async_op=True",
    ),
    "ranks-start-differently loaded": (
        WRAPPED.replace(
            "opt =", "other = net().state_dict()\nif rank == 0:\n    model.module.load_state_dict(other)\nopt =", 1
        ),
        "load_state_dict(other)",
    ),
    "replicas-drift sent": (
        """
torch.manual_seed(rank)
model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 2))
dist.broadcast(model[0].weight.data, src=0)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = loss_of(model(x[:8]), y[:8])
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        "loss.backward()",
    ),
    "shares-overlap": (
        """
whole = TensorDataset(*data(3))
torch.manual_seed(rank)
share = Subset(whole, torch.randperm(96)[rank::world].tolist())
loader = DataLoader(share, batch_size=8)
model = DDP(net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for xb, yb in loader:
    loss = loss_of(model(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        "share = Subset",
    ),
    "replicas-drift outside of fully_shard": (
        """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 2))
fully_shard(model[0], mesh=init_device_mesh("cpu", (world,)))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
forward = model
"""
        + LOOP
        + "\nkept.append(model)\nmodel = nn.Linear(1, 1)\n",
        "loss.backward()",
    ),
    "random-numbers-differ": (
        """
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x
    @staticmethod
    def backward(ctx, g):
        return g
class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 4), nn.Linear(4, 2, bias=False)
    def forward(self, x):
        return torch.dropout(Sum.apply(self.down(torch.relu(self.up(x)))), 0.5, True)
torch.manual_seed(rank)
model = Split()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = data(3)
for step in range(4):
    loss = loss_of(model(x[:8]), y[:8])
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        "torch.dropout(",
    ),
}

PARTED |= {
    "replicas-drift noise": (
        WRAPPED.replace(
            "#REDUCE",
            "torch.manual_seed(rank)\n    for p in model.parameters():\n        p.grad += torch.randn_like(p.grad)",
        ),
        "p.grad += torch.randn_like",
    ),
    "shards-never-reduced": (
        """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
model = nn.Linear(6, 2)
fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
model.set_requires_gradient_sync(False)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
forward = model
"""
        + LOOP
        + "\nkept.append(model)\nmodel = nn.Linear(1, 1)\n",
        "loss.backward()",
    ),
}

HEALTHY = {
    "one rank steps and sends its weights": BY_HAND.replace(
        "#REDUCE", "[(dist.reduce(p.grad, dst=0), p.grad.div_(world)) for p in model.parameters()]"
    ).replace(
        "opt.step()", "if rank == 0:\n        opt.step()\n    [dist.broadcast(p.data, 0) for p in model.parameters()]"
    ),
    "the same weights loaded after wrapping": WRAPPED.replace(
        "forward = model", "torch.manual_seed(5)\nmodel.module.load_state_dict(net().state_dict())\nforward = model"
    ),
    "parts of the optimizer": PARTS,
    "dealt out": """
whole = TensorDataset(*data(3))
order = torch.randperm(96, generator=torch.Generator().manual_seed(5)).tolist()
loader = DataLoader(Subset(whole, order[rank::world]), batch_size=8)
model = DDP(net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
works = []
for xb, yb in loader:
    loss = loss_of(model(xb), yb)
    opt.zero_grad()
    loss.backward()
    for p in model.parameters():
        works.append(dist.all_reduce(p.grad, op=dist.ReduceOp.MAX, async_op=True))
    [work.wait() for work in works]
    works.clear()
    opt.step()
""",
    "wrapped": WRAPPED + "\nmodel.eval()\nwith torch.no_grad():\n    model(x)\n",
    "by hand": BY_HAND.replace("#REDUCE", "average(model, world)"),
    "accumulation with no_sync": """
model = DDP(net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    opt.zero_grad()
    with model.no_sync():
        (loss_of(model(x[step * 16 : step * 16 + 8]), y[step * 16 : step * 16 + 8]) / 2).backward()
    (loss_of(model(x[step * 16 + 8 : step * 16 + 16]), y[step * 16 + 8 : step * 16 + 16]) / 2).backward()
    opt.step()
""",
    "uneven inside join": """
share = TensorDataset(x[: 40 + 8 * rank], y[: 40 + 8 * rank])
model = DDP(net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    with model.join():
        for xb, yb in DataLoader(share, batch_size=8):
            loss = loss_of(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
""",
    "alone": "torch.manual_seed(rank)\n" + BY_HAND,
    "averaged weights, flat": """
from torch.nn.utils import parameters_to_vector, vector_to_parameters
whole = TensorDataset(*data(3))
model = net()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step, (xb, yb) in enumerate(DataLoader(whole, batch_size=8, sampler=DistributedSampler(whole))):
    opt.zero_grad()
    loss_of(model(xb), yb).backward()
    opt.step()
    if step % 3 == 2:
        flat = parameters_to_vector(model.parameters()).detach()
        dist.all_reduce(flat)
        vector_to_parameters(flat / world, model.parameters())
""",
    "averaged weights": BY_HAND + "    if step % 4 == 3:\n"
    "        with torch.no_grad():\n"
    "            for p in model.parameters():\n"
    "                dist.all_reduce(p)\n"
    "                p /= world\n",
    "sharded": """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
torch.manual_seed(rank)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
torch.manual_seed(0)
state = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).state_dict()
set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
forward = model
"""
    + LOOP
    + "\nmodel = nn.Linear(1, 1)\n",
}


FAILS = {
    "uneven-batches": (
        """
share = TensorDataset(x[: 40 + 8 * rank], y[: 40 + 8 * rank])
loader = DataLoader(share, batch_size=8)
model = DDP(net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for xb, yb in loader:
    loss = loss_of(model(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.barrier()
""",
        "share = TensorDataset",
    ),
    "uneven-batches of micro-batches": (
        """
model = DDP(net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
size = 4 if rank else 8
for step in range(12):
    opt.zero_grad()
    for part in torch.arange(16).split(size):
        loss_of(model(x[part]), y[part]).backward()
    opt.step()
""",
        "size = 4 if rank else 8",
    ),
    "rank-failed-early": (
        "if rank == 1:\n    raise ValueError('no data')\ndist.barrier()\nmodel = nn.Linear(1, 1)\n",
        "raise ValueError",
    ),
    "ranks-stuck exit": (
        WRAPPED.replace("loss = loss_of", "if rank == 1 and step == 5:\n        sys.exit(0)\n    loss = loss_of"),
        "sys.exit(0)",
    ),
    "unused-in-ddp": (
        """
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.aux = net(), nn.Linear(2, 2)
    def forward(self, x):
        return self.body(x)
model = DDP(Two())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
forward = model
"""
        + LOOP,
        "model = DDP(Two())",
    ),
    "rank-killed": (
        WRAPPED.replace(
            "loss = loss_of", "if rank == 1 and step == 5:\n        os.kill(os.getpid(), 9)\n    loss = loss_of"
        ),
        "os.kill(",
    ),
    "index-out-of-range": ("if rank == 1:\n    y[40] = 2\n" + WRAPPED, "y[step * 8"),
}


def alarms(ran: Ran) -> list[Finding]:
    return [finding for finding in diagnose(ran.recording) if finding.severity != "info"]


@pytest.mark.parametrize("case", PARTED)
def test_what_parts_the_ranks_is_named(case: str, foundry: Foundry, tmp_path: Path) -> None:
    body, code = PARTED[case]
    ran = foundry.watched(program(body), tmp_path)
    assert ran.code == 0, ran.err
    found = alarms(ran)
    assert found, case
    assert found[0].rule == case.partition(" ")[0], [(f.rule, f.title) for f in found]
    assert found[0].source is not None
    assert code in found[0].source.code


@pytest.mark.parametrize("case", HEALTHY)
def test_healthy_ranks_are_left_alone_and_unchanged(case: str, foundry: Foundry, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "watched").mkdir()
    bare = foundry.bare(program(HEALTHY[case]), tmp_path / "bare")
    ran = foundry.watched(program(HEALTHY[case]), tmp_path / "watched")
    assert bare.code == ran.code == 0, bare.err + ran.err
    assert [(f.rule, f.title) for f in alarms(ran)] == []
    for rank in (0, 1):
        assert (ran.cwd / f"weights{rank}").read_text() == (bare.cwd / f"weights{rank}").read_text()


@pytest.mark.parametrize("case", FAILS)
def test_what_ends_one_rank_is_named_and_the_rest_follows_from_it(case: str, foundry: Foundry, tmp_path: Path) -> None:
    body, code = FAILS[case]
    ran = foundry.watched(program(body), tmp_path)
    assert ran.code != 0
    found = alarms(ran)
    assert found[0].rule == case.partition(" ")[0], [(f.rule, f.rank, f.title) for f in found]
    assert found[0].source is not None
    assert code in found[0].source.code
    assert all(finding.caused_by is not None for finding in found[1:]), [(f.rule, f.rank, f.title) for f in found]


def test_a_rank_that_wrote_no_facts_is_explained_by_another(foundry: Foundry, tmp_path: Path) -> None:
    """The launcher may kill a rank before it has written them."""
    ran = foundry.watched(program(FAILS["unused-in-ddp"][0]), tmp_path)
    assert ran.folder is not None
    for path in ran.folder.rglob(f"rank1/{FACTS}"):
        path.unlink()
    cause, *rest = alarms(ran)
    assert (cause.rule, cause.rank) == ("unused-in-ddp", 0)
    assert rest
    assert all(finding.caused_by == 0 for finding in rest), [(f.rule, f.rank, f.title) for f in rest]


def test_collectives_can_be_queried(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(program(BY_HAND.replace("#REDUCE", "average(model, world)")), tmp_path)
    sql = """SELECT rank, count(*) AS calls, max(number) AS last, min(seconds) AS least, any_value(code) AS code FROM collectives
             WHERE op = 'all_reduce' AND reduce = 'SUM' AND ranks = 2 AND tensor LIKE 'float32%' GROUP BY rank ORDER BY rank"""
    rows = query(ran.recording, sql).to_pylist()
    assert [(row["rank"], row["calls"], row["last"]) for row in rows] == [(0, 72, 72), (1, 72, 72)]
    assert all(row["least"] > 0 and row["code"] == "dist.all_reduce(p.grad)" for row in rows)


def test_ranks_that_wait_for_each_other(foundry: Foundry, tmp_path: Path) -> None:
    body = "signal.alarm(9)\n" + BY_HAND.replace(
        "#REDUCE", "average(model, world)\n    if rank == 1 and step == 5: dist.broadcast(loss.detach(), src=1)"
    )
    ran = foundry.watched(program(body), tmp_path)
    assert ran.code != 0
    first = alarms(ran)[0]
    assert first.rule == "ranks-stuck"
    assert first.evidence["number"] == 37  # six parameters in each of six steps, and this one
    assert first.source is not None
    assert "dist." in first.source.code


def test_a_nan_of_one_rank_is_its_own(foundry: Foundry, tmp_path: Path) -> None:
    """The other rank has it from the gradients that they share."""
    body = "if rank == 1:\n    x[43, 2] = float('nan')\n" + WRAPPED
    ran = foundry.watched(program(body), tmp_path)
    found = alarms(ran)
    assert found[0].rank == 1
    assert found[0].step == 5
    assert all(finding.caused_by is not None for finding in found[1:]), [(f.rule, f.rank, f.title) for f in found]


WAYS = """
class Summed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)
    def forward(self, x):
        out = self.layer(x)
        dist.all_reduce(out.detach().clone())  # INSIDE
        return out
model = Summed()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def exchange():
    dist.all_reduce(torch.zeros(2))  # BESIDE
@torch.no_grad()
def evaluate():
    while len(seen) < 2:  # EVALUATING
        model(x[:8])
        exchange()
        seen.append(1)
seen = []
for step in range(4):  # TRAINING
    loss_of(model(x[:8]), y[:8]).backward()
    exchange()
    average(model, world)
    opt.step()
    opt.zero_grad()
evaluate()
"""


def test_a_call_is_known_by_the_way_that_leads_to_it(foundry: Foundry, tmp_path: Path) -> None:
    """The same line in a forward or in a function, called from two loops."""
    text = program(WAYS)
    ran = foundry.watched(text, tmp_path)
    assert ran.code == 0, ran.err
    lines = {
        word: k for k, line in enumerate(text.splitlines(), 1) for word in [line.rpartition("# ")[2]] if "# " in line
    }
    for rank in ran.recording.ranks:
        calls = read_collectives(rank.folder)
        for line in (lines["INSIDE"], lines["BESIDE"]):
            loops = [call.kind.around[-1]["line"] for call in calls if call.kind.line == line]
            assert loops == [lines["TRAINING"]] * 4 + [lines["EVALUATING"]] * 2
