"""Ranks that compute one model together, and what they count, keep and take for themselves beside it: mistakes are named, near misses are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks_program import program
from test_ranks import BY_HAND, LOOP, WRAPPED, alarms

from launch import Foundry

TENSOR_PARALLEL = (
    """
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g

class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x
    @staticmethod
    def backward(ctx, g):
        #BACKWARD
        return g

class Split(nn.Module):
    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(5 + rank)
        self.up = nn.Parameter(torch.randn(8, 6, generator=g) * 0.3)
        self.down = nn.Parameter(torch.randn(2, 8, generator=g) * 0.3)
    def forward(self, x):
        return Sum.apply(torch.tanh(Copy.apply(x) @ self.up.t()) @ self.down.t())

x, y = data(10)
model = Split()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
forward = model
"""
    + LOOP
)

LOADER = """
whole = TensorDataset(*data(3))
sampler = DistributedSampler(whole, num_replicas=2, rank=rank)
model = DDP(net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=3 * 6)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for xb, yb in DataLoader(whole, batch_size=8, sampler=sampler):
        opt.zero_grad()
        loss_of(model(xb), yb).backward()
        opt.step()
        schedule.step()
right, seen = torch.zeros(1), 0
model.eval()
with torch.no_grad():
    for k in range(4):
        right += (model(x[k * 8 : k * 8 + 8]).argmax(1) == y[k * 8 : k * 8 + 8]).sum()
        seen += 8
dist.all_reduce(right)
print(right.item() / (seen * world))
"""

MICRO = """
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    opt.zero_grad()
    for k in range(2):
        loss_of(model(x[k * 8 : k * 8 + 8]), y[k * 8 : k * 8 + 8]).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
    opt.step()
"""

TEACHER = """
import copy
torch.manual_seed(rank)
student = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
model = DDP(student)
teacher = copy.deepcopy(student).requires_grad_(False)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    with torch.no_grad():
        target = teacher(x[:8] + 0.1)
    loss = (model(x[:8]) - target).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for p, q in zip(teacher.parameters(), student.parameters()):
            p.mul_(0.9).add_(q, alpha=0.1)
"""

CENTER = """
class Distance(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(2))
    def forward(self, out):
        loss = (out - self.center - 1).pow(2).mean()
        with torch.no_grad():
            mean = out.mean(0)
            dist.all_reduce(mean)
            self.center.mul_(0.9).add_(mean, alpha=0.05)
        return loss

model = DDP(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)))
distance = Distance()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    loss = distance(model(x[step * 8 : step * 8 + 8]))
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

BY_RANK = """
order = torch.randperm(len(x))[rank::world]
x, y = x[order], y[order]
"""

EXTRA = (
    """
class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_var = nn.Parameter(torch.zeros(1))
    def forward(self, out, y):
        return loss_of(out, y) * torch.exp(-self.log_var).sum() + self.log_var.sum()

model = DDP(net())
criterion = DDP(Weighted())
opt = torch.optim.SGD([*model.parameters(), *criterion.parameters()], lr=0.1)
forward = model
loss_of = criterion
""".replace("loss_of(out, y)", "nn.functional.cross_entropy(out, y)")
    + LOOP
)
EXTRA = EXTRA.replace("loss_of = criterion\n", "").replace("loss = loss_of(", "loss = criterion(")

LATE = """
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
forward = model
""" + LOOP.replace(
    "#REDUCE",
    "works = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]\n    [work.wait() for work in works]\n"
    "    [p.grad.div_(world) for p in model.parameters()]",
)

HEAD = TENSOR_PARALLEL.replace(
    "    def forward(self, x):\n        return Sum",
    "        torch.manual_seed(7)\n        self.head = nn.Linear(2, 2)\n    def forward(self, x):\n        return self.head(Sum",
).replace("@ self.down.t())", "@ self.down.t()))")

PARTS = """
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
whole = list(model.parameters())
opt = torch.optim.SGD(whole[rank::world], lr=0.1)
for step in range(6):
    model.zero_grad()
    loss_of(model(x[step * 8 : step * 8 + 8]), y[step * 8 : step * 8 + 8]).backward()
    for p in whole:
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
    with torch.no_grad():
        for k, p in enumerate(whole):
            dist.broadcast(p, src=k % world)
"""

STAGES = """
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
torch.use_deterministic_algorithms(True)  # fills new memory with NaN
x, y = data(10)
parts = [nn.Sequential(nn.Linear(6, 8), nn.Tanh()), nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))]
model = parts[rank]
stage = PipelineStage(model, rank, world, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=nn.CrossEntropyLoss())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    rows = slice(step * 8, step * 8 + 8)
    opt.zero_grad()
    schedule.step(x[rows]) if rank == 0 else schedule.step(target=y[rows])
    opt.step()
"""

RENEWED = """
from torch.optim.swa_utils import AveragedModel, update_bn
model = DDP(net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
averaged = AveragedModel(model.module)
for step in range(6):
    loss = loss_of(model(x[step * 8 : step * 8 + 8]), y[step * 8 : step * 8 + 8])
    opt.zero_grad()
    loss.backward()
    opt.step()
    averaged.update_parameters(model.module)
update_bn(x.split(16), averaged)
averaged.eval()
with torch.no_grad():
    averaged(data(5)[0])
"""

SENT = """
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    opt.zero_grad()
    loss_of(model(x[step * 8 : step * 8 + 8]), y[step * 8 : step * 8 + 8]).backward()
    opt.step()
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
"""

STATISTICS = (
    WRAPPED.replace("DDP(net())", "DDP(net(), broadcast_buffers=False)")
    + """
norm = model.module[1]
for buffer in (norm.running_mean, norm.running_var):
    dist.all_reduce(buffer)
    buffer /= world
model.eval()
with torch.no_grad():
    model.module(x)
"""
)

NAMED = {
    "cleared-on-some-ranks": (
        WRAPPED.replace("    opt.zero_grad()", "    if rank == 0:\n        opt.zero_grad()"),
        "opt.zero_grad()",
    ),
    "statistics-summed-over-ranks": (STATISTICS.replace("    buffer /= world\n", ""), "dist.all_reduce(buffer)"),
    "changed-before-awaited": (
        LATE.replace("    [work.wait() for work in works]\n", "").replace(
            "for p in model.parameters()]\n    opt",
            "for p in model.parameters()]\n    [work.wait() for work in works]\n    opt",
        ),
        "async_op=True",
    ),
    "held-differently": (HEAD.replace("torch.manual_seed(7)", "torch.manual_seed(7 + rank)"), "self.head ="),
    "stepped-with-own-gradients": (
        PARTS.replace("        dist.all_reduce(p.grad)\n        p.grad /= world\n", "        pass\n"),
        "opt.step()",
    ),
    "statistics-of-own-share": (RENEWED, "update_bn("),
    "weights-of-one-rank-kept": (SENT, "dist.broadcast(p.data, src=0)"),
    "learning-rates-differ by hand": (
        WRAPPED.replace("    opt.zero_grad()", "    opt.param_groups[0]['lr'] = 0.1 / (1 + rank)\n    opt.zero_grad()"),
        "['lr'] =",
    ),
    "shares-overlap of files": (
        "import random\nnames = [f'{k}.pt' for k in range(48)]\nrandom.seed(rank)\nrandom.shuffle(names)\nmine = names[rank::world]\n"
        + WRAPPED,
        "names[rank::world]",
    ),
    "reduced-to-infinity": (
        BY_HAND.replace("loss = loss_of", "loss = 6e5 * loss_of").replace(
            "#REDUCE",
            "for p in model.parameters():\n        g = p.grad.half()\n        dist.all_reduce(g)\n        p.grad.copy_(g.float() / world / 6e5)",
        ),
        "dist.all_reduce(g)",
    ),
    "shards-begin-alike": (TENSOR_PARALLEL.replace("manual_seed(5 + rank)", "manual_seed(5)"), "manual_seed(5)"),
    "shared-gradient-summed": (
        TENSOR_PARALLEL.replace("#BACKWARD", "g = g.clone()\n        dist.all_reduce(g)"),
        "dist.all_reduce(g)",
    ),
    "parts-of-different-batches": (TENSOR_PARALLEL.replace("data(10)", "data(10 + rank)"), "forward(xb)"),
    "divided-by-own-count": (LOADER.replace("(seen * world)", "seen"), "right.item() / seen"),
    "more-shares-than-ranks": (
        LOADER.replace("num_replicas=2", "num_replicas=4").replace("3 * 6", "3 * 3"),
        "DistributedSampler(whole",
    ),
    "schedule-counts-all-ranks": (LOADER.replace("3 * 6", "3 * 12"), "OneCycleLR"),
    "reduced-again": (MICRO.replace("            p.grad /= world\n", ""), "dist.all_reduce(p.grad)"),
    "loss-divided-by-ranks": (
        WRAPPED.replace("    opt.zero_grad()", "    loss = loss / world\n    opt.zero_grad()"),
        "loss / world",
    ),
    "loss-summed-over-ranks": (
        "import torch.distributed.nn.functional as among\n"
        + WRAPPED.replace("    opt.zero_grad()", "    loss = among.all_reduce(loss)\n    opt.zero_grad()"),
        "among.all_reduce",
    ),
    "evaluated-weights-differ": (
        TEACHER.replace("model = DDP(student)\n", "").replace("opt = ", "model = DDP(student)\nopt = "),
        "copy.deepcopy",
    ),
    "buffers-not-synchronised": (CENTER.replace("            dist.all_reduce(mean)\n", ""), "self.center"),
    "shares-overlap by hand": ("x, y = data(10, 192)\ntorch.manual_seed(rank)\n" + BY_RANK + WRAPPED, "[rank::world]"),
    "replicas-drift beside": (EXTRA.replace("DDP(Weighted())", "Weighted()"), "criterion = Weighted()"),
}

LEFT_ALONE = {
    "statistics averaged by hand": STATISTICS,
    "waited for, then divided": LATE,
    "a head of all ranks": HEAD,
    "parts with the gradients of all": PARTS,
    "statistics of the same batches": RENEWED.replace("update_bn(x", "update_bn(data(3)[0]"),
    "statistics of own batches, then averaged": RENEWED.replace(
        "averaged.eval()",
        "for one in (averaged.module[1].running_mean, averaged.module[1].running_var):\n    dist.all_reduce(one)\n    one /= world\naveraged.eval()",
    ),
    "stages that are run on memory full of NaN before they train": STAGES,
    "sent again, with the gradients of all": SENT.replace(
        "    opt.step()\n",
        "    for p in model.parameters():\n        dist.all_reduce(p.grad)\n        p.grad /= world\n    opt.step()\n",
    ),
    "the mean of all weights, sent again": SENT.replace(
        "    for p in model.parameters():\n        dist.broadcast",
        "    for p in model.parameters():\n        dist.reduce(p.data, dst=0)\n        p.data /= world\n        dist.broadcast",
    ),
    "files in one order": "import random\nnames = [f'{k}.pt' for k in range(48)]\nrandom.seed(3)\nrandom.shuffle(names)\nmine = names[rank::world]\n"
    + WRAPPED,
    "shards of one whole": TENSOR_PARALLEL,
    "features of each rank": TENSOR_PARALLEL.replace("x, y = data(10)", "y = data(10)[1]"),
    "counts of all ranks": LOADER,
    "averaged in every micro-batch": MICRO,
    "divided by micro-batches": "accumulate = 2\n"
    + WRAPPED.replace("    opt.zero_grad()", "    loss = loss / accumulate\n    opt.zero_grad()"),
    "a mean of all losses": "import torch.distributed.nn.functional as among\n"
    + WRAPPED.replace("    opt.zero_grad()", "    loss = among.all_reduce(loss) / world\n    opt.zero_grad()"),
    "a loss that is averaged for the log": WRAPPED.replace(
        "    opt.zero_grad()",
        "    shown = loss.detach().clone()\n    dist.all_reduce(shown)\n    shown = shown / world\n    opt.zero_grad()",
    ),
    "a teacher of all ranks": TEACHER,
    "a center of all ranks": CENTER,
    "shares of one order": "x, y = data(10, 192)\n" + BY_RANK + WRAPPED,
    "weights of the loss wrapped": EXTRA,
}


@pytest.mark.parametrize("case", NAMED)
def test_what_is_wrong_between_the_ranks_is_named(case: str, foundry: Foundry, tmp_path: Path) -> None:
    body, code = NAMED[case]
    ran = foundry.watched(program(body), tmp_path)
    assert ran.code == 0, ran.err
    found = alarms(ran)
    assert [f.rule for f in found[:1]] == [case.partition(" ")[0]], [(f.rule, f.title) for f in found]
    assert found[0].source is not None
    assert code in found[0].source.code


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_what_only_looks_like_it_is_left_alone(case: str, foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(program(LEFT_ALONE[case]), tmp_path)
    assert ran.code == 0, ran.err
    assert [(f.rule, f.title) for f in alarms(ran)] == []


def test_a_rank_that_waits_before_it_trains_is_seen(foundry: Foundry, tmp_path: Path) -> None:
    """The stage that receives waits in its first collective, before it has called any model."""
    body = """
signal.alarm(9)
model = nn.Linear(6, 8) if rank == 0 else nn.Linear(8, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
if rank == 0:
    dist.send(model(x[:8]).detach(), dst=1, tag=0)
else:
    dist.recv(torch.empty(8, 8), src=0, tag=1)
"""
    ran = foundry.watched(program(body), tmp_path)
    assert ran.code != 0
    first = alarms(ran)[0]
    assert first.rule == "ranks-stuck", [(f.rule, f.title) for f in alarms(ran)]
    assert first.source is not None
    assert "dist." in first.source.code
