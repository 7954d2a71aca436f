"""Makes small training programs from a seed: each mixes what user code may change while it runs.

A program leaves `result`, a function that gives all its state; `run_programs.py` runs it bare and under Tensonde.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

HEAD = """
import array, collections, contextvars, copy, ctypes, dataclasses, fractions, functools, itertools, math, os, pathlib, queue, random, threading
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_ema_avg_fn

CALLS = 0
SEEN = []
BY_SHAPE = {}
WEIGHT = torch.ones(3)
ARRAY = np.zeros(4)
NAMED = 0
QUEUE, LOCAL, CONTEXT = queue.Queue(), threading.local(), contextvars.ContextVar("CONTEXT")
LOCAL.n, NATIVE, fractions.seen = 0, ctypes.c_long(0), 0
CONTEXT.set(0)
SPARSE = [torch.eye(3).to_sparse().coalesce(), torch.eye(3).to_sparse_csr()]

@dataclasses.dataclass
class Stats:
    count: int = 0
    values: list = dataclasses.field(default_factory=list)

class Slotted:
    __slots__ = ("count", "last")
    def __init__(self):
        self.count = 0

def counter():
    n = 0
    def count():
        nonlocal n
        n += 1
        return n
    return count

count = counter()

def noted(value, into=[]):
    into.append(float(value))
    return len(into)

class Twice(torch.autograd.Function):
    calls = 0
    @staticmethod
    def forward(ctx, x):
        Twice.calls += 1
        return x * 2
    @staticmethod
    def backward(ctx, g):
        Twice.calls += 10
        return g * 2

class Draws:
    def __init__(self):
        self.at = 0
    def __iter__(self):
        return self
    def __next__(self):
        self.at += 1
        return self.at * 1e-3
"""

SETUP = {
    "counter": ("self.calls = 0", "self.calls += 1"),
    "list": ("self.history = []", "self.history.append(float(x.detach().mean()))"),
    "dict": ("self.table = {}", "self.table[len(self.table) % 3] = float(x.detach().sum())"),
    "defaultdict": ("self.counts = collections.defaultdict(int)", "self.counts[int(torch.randint(4, ()))] += 1"),
    "ordered": (
        "self.order = collections.OrderedDict(a=1, b=2, c=3)",
        "self.order.move_to_end(next(iter(self.order)))",
    ),
    "deque": ("self.recent = collections.deque(maxlen=3)", "self.recent.append(x.detach().mean())"),
    "set": ("self.kinds = set()", "self.kinds.add(round(float(x.detach().mean()), 1))"),
    "buffer": ('self.register_buffer("seen", torch.zeros(()))', "self.seen.add_(1); x = x + self.seen * 1e-3"),
    "rebound buffer": ('self.register_buffer("again", torch.zeros(2))', "self.again = self.again + 1"),
    "plain tensor": ("self.mean = torch.zeros(16)", "self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)"),
    "rebound tensor": ("self.last = torch.zeros(16)", "self.last = self.last * 0.5 + x.detach()[0]"),
    "foreach": (
        "self.pair = [torch.ones(3), torch.ones(5)]",
        "torch._foreach_mul_(self.pair, 0.9); torch._foreach_add_(self.pair, 0.01)",
    ),
    "foreach lerp": (
        "self.of, self.to = [torch.ones(3)], [torch.zeros(3)]",
        "torch._foreach_lerp_(self.of, self.to, 0.1); x = x + self.of[0].sum() * 1e-3",
    ),
    "out": ("self.acc = torch.zeros(16)", "torch.add(self.acc, x.detach().sum(0), out=self.acc)"),
    "setitem": ("self.cells = torch.zeros(4, 16)", "self.cells[noted(0) % 4] = x.detach()[0]"),
    "data": ("self.swap = torch.zeros(3)", "self.swap.data = self.swap.data + 1; self.swap.data.mul_(1.5)"),
    "view": ("self.queue = torch.zeros(6, 16)", "self.queue.copy_(self.queue.roll(1, 0)); self.queue[0].add_(1)"),
    "numpy array": ("self.array = np.zeros(3)", "self.array += 1; ARRAY[1] += 0.5"),
    "shared memory": ("self.shared = torch.zeros(3); self.seenas = self.shared.numpy()", "self.seenas[0] += 1"),
    "global": ("", "global CALLS; CALLS += 1; SEEN.append(CALLS); BY_SHAPE[tuple(x.shape)] = CALLS"),
    "global by its name": ("", "globals()['NAMED'] = globals()['NAMED'] + 1"),
    "library's attribute": ("", "fractions.seen = fractions.seen + 1; x = x + fractions.seen * 1e-4"),
    "queue": ("", "QUEUE.put(float(x.detach().sum()))"),
    "thread's own": ("", "LOCAL.n += 1; x = x + LOCAL.n * 1e-4"),
    "context": ("", "CONTEXT.set(CONTEXT.get() + 1); x = x + CONTEXT.get() * 1e-4"),
    "ctypes": ("", "NATIVE.value += 1; x = x + NATIVE.value * 1e-4"),
    "array": ("self.numbers = array.array('d', [0.0])", "self.numbers[0] += 1; self.numbers.append(2.0)"),
    "sparse": ("", "SPARSE[0].values().mul_(1.01); SPARSE[1].values().add_(0.01); x = x * SPARSE[0].values()[0].clamp(max=2)"),
    "resized": ("self.long = torch.zeros(2)", "self.long.resize_(self.long.numel() + 1).fill_(1)"),
    "resized storage": (
        "self.room = torch.zeros(4)",
        "self.room.untyped_storage().resize_(0); self.room.untyped_storage().resize_(16); self.room.fill_(1)",
    ),
    "swapped": ("self.one = torch.zeros(2)", "torch.utils.swap_tensors(self.one, self.one + 1)"),
    "appended file": ("self.notes = pathlib.Path('notes.txt'); self.notes.write_text('')", "with self.notes.open('a') as f: f.write('x')"),
    "environment": ("os.environ['TEST_CALLS'] = '0'", "os.environ['TEST_CALLS'] = str(int(os.environ['TEST_CALLS']) + 1)"),
    "global tensor": ("", "WEIGHT.mul_(1.01); x = x * WEIGHT[0].clamp(max=1.5)"),
    "closure": ("", "x = x + count() * 1e-4"),
    "default": ("", "noted(x.detach().max())"),
    "class attribute": ("type(self).made = 0", "type(self).made += 1; Net.newest = float(x.detach()[0, 0])"),
    "dataclass": ("self.stats = Stats()", "self.stats.count += 1; self.stats.values.append(self.stats.count)"),
    "slots": ("self.slotted = Slotted()", "self.slotted.count += 1; self.slotted.last = x.detach()[0].clone()"),
    "iterator of its own": ("self.draws = Draws()", "x = x + next(self.draws)"),
    "iterator": ("self.ids = itertools.count()", "x = x + next(self.ids) * 1e-4"),
    "cycle": ("self.turns = itertools.cycle([0.1, 0.2, 0.3])", "x = x * (1 + next(self.turns) * 0.01)"),
    "generator": ("self.gen = (i * 1e-3 for i in range(10**6))", "x = x + next(self.gen)"),
    "file": ("self.log = open('log.txt', 'w+')", "self.log.write('x')"),
    "random": ("", "x = x * (1 + random.random() * 0.01)"),
    "numpy random": ("", "x = x * (1 + float(np.random.rand()) * 0.01)"),
    "torch random": ("", "x = x + torch.randn_like(x) * 0.01"),
    "own generator": (
        "self.rng = torch.Generator().manual_seed(3)",
        "x = x + torch.rand(16, generator=self.rng) * 0.01; self.mean_ = torch.empty(2).normal_(generator=self.rng)",
    ),
    "own numpy": ("self.np_rng = np.random.default_rng(1)", "x = x + float(self.np_rng.normal()) * 0.01"),
    "old numpy": ("self.old_rng = np.random.RandomState(1)", "x = x + float(self.old_rng.rand()) * 0.01"),
    "own random": ("self.py_rng = random.Random(5)", "x = x + self.py_rng.random() * 0.01"),
    "weight": (
        "self.scale = nn.Parameter(torch.ones(16))",
        "self.scale.data.mul_(0.999)\n        x = x * self.scale",
    ),
    "optimizer": (
        "self.inner = nn.Linear(16, 16); self.adam = torch.optim.Adam(self.inner.parameters(), 1e-3)",
        "with torch.enable_grad():\n            F.mse_loss(self.inner(x.detach()), x.detach()).backward()\n"
        "        self.adam.step()\n        self.adam.zero_grad()\n        x = x + self.inner(x.detach()).detach() * 0.01",
    ),
    "kept gradients": (
        "self.probe = nn.Parameter(torch.zeros(16))",
        "with torch.enable_grad():\n            ((x.detach() * self.probe).sum() + self.probe.sum()).backward()",
    ),
    "function": ("", "x = Twice.apply(x) * 0.5"),
    "attributes": (
        "self.k = 0",
        'self.k = (self.k + 1) % 3; setattr(self, f"t{self.k}", self.k)\n'
        '        if self.k == 2:\n            del self.t2',
    ),
    "mode": ("", "self.drop.p = 0.1 if self.drop.p == 0.2 else 0.2"),
    "default dtype": ("", "torch.set_default_dtype(torch.float32); print('called', tuple(x.shape))"),
    "grown": ("self.grown = nn.ParameterList()", "self.grown.append(nn.Parameter(torch.zeros(1))) if len(self.grown) < 4 else 0"),
    "replaced": ("self.part = nn.Identity()", "self.part = nn.Identity()"),
    "vector quantiser": (
        'self.register_buffer("codes", torch.randn(4, 16)); self.register_buffer("sums", torch.zeros(4, 16))',
        "near = torch.cdist(x.detach(), self.codes).argmin(1)\n        if self.training:\n"
        "            with torch.no_grad():\n"
        "                self.sums.mul_(0.9).index_add_(0, near, x.detach())\n"
        "                self.codes.data.lerp_(self.sums, 0.05)\n"
        "        x = x + 0.01 * self.codes[near]",
    ),
}  # fmt: skip
LAYERS = (
    "nn.BatchNorm1d(16)", "nn.LayerNorm(16)", "nn.ReLU(inplace=True)", "nn.Dropout(0.2)", "nn.Linear(16, 16)", "nn.GELU()",
    "nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16))", "nn.BatchNorm1d(16, momentum=None)",
    "nn.InstanceNorm1d(16, track_running_stats=True)", "nn.RReLU()", "nn.AlphaDropout(0.1)",
)  # fmt: skip
HOOKS = (
    "net.register_forward_hook(lambda m, a, out: SEEN.append(len(SEEN)))",
    "net.body[0].register_forward_pre_hook(lambda m, a: BY_SHAPE.update(n=BY_SHAPE.get('n', 0) + 1))",
    "net.head.weight.register_hook(lambda g: SEEN.append(float(g.sum())))",
    "net.head.weight.register_hook(lambda g: g * 0.99)",
    "net.head.register_full_backward_hook(lambda m, gi, go: SEEN.append(1))",
    "net.head.bias.register_post_accumulate_grad_hook(lambda p: SEEN.append(2))",
)
EMAS = {
    "none": ("", "pass", "net"),
    "multi_avg_fn": ("ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))", "ema.update_parameters(net)", "ema"),
    "multi_avg_fn with buffers": (
        "ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)", "ema.update_parameters(net)", "ema"
    ),
    "avg_fn": ("ema = AveragedModel(net, avg_fn=get_ema_avg_fn(0.9))", "ema.update_parameters(net)", "ema"),
    "swa": ("ema = AveragedModel(net)", "ema.update_parameters(net)", "ema"),
    "deepcopy and lerp": (
        "ema = copy.deepcopy(net).requires_grad_(False)",
        "with torch.no_grad():\n        for a, b in zip(ema.parameters(), net.parameters()):\n            a.lerp_(b, 0.1)",
        "ema",
    ),
    "detach": (
        "ema = copy.deepcopy(net).requires_grad_(False)",
        "for a, b in zip(ema.parameters(), net.parameters()):\n        a.detach().mul_(0.9).add_(b.detach(), alpha=0.1)",
        "ema",
    ),
    "data": (
        "ema = copy.deepcopy(net).requires_grad_(False)",
        "for a, b in zip(ema.parameters(), net.parameters()):\n        a.data = a.data * 0.9 + b.data * 0.1",
        "ema",
    ),
    "state dict": (
        "ema = copy.deepcopy(net)",
        "theirs = net.state_dict()\n    for key, value in ema.state_dict().items():\n"
        "        if value.is_floating_point():\n            value.copy_(value * 0.9 + theirs[key] * 0.1)",
        "ema",
    ),
    "foreach by hand": (
        "ema = copy.deepcopy(net).requires_grad_(False)",
        "with torch.no_grad():\n        mine = list(ema.parameters())\n        torch._foreach_mul_(mine, 0.9)\n"
        "        torch._foreach_add_(mine, [p.detach() for p in net.parameters()], alpha=0.1)",
        "ema",
    ),
}  # fmt: skip
OPTIMIZERS = (
    "torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)", "torch.optim.Adam(net.parameters(), 1e-2)",
    "torch.optim.AdamW(net.parameters(), 1e-2, foreach=True)", "torch.optim.RMSprop(net.parameters(), 1e-3, foreach=False)",
)  # fmt: skip
BATCHES = (
    "x, y = X[i], Y[i]", "x, y = X[i].clone().mul_(1.01), Y[i]", "x, y = X[step * 4:step * 4 + 16], Y[step * 4:step * 4 + 16]; x.mul_(1.001)",
    "x, y = X.float()[:16], Y[:16]; x.add_(1e-3)", "x, y = X[i], Y[i]; x[0] = 0; x += noise",
    "x, y = X[i], Y[i]; torch.mul(x, 1.01, out=x)", "x, y = X.detach()[8:24], Y[8:24]; torch._foreach_add_([x], 1e-3)",
    "x, y = X[i], Y[i]; noise.normal_(); x = x + noise * 0.01", "x, y = X[i], Y[i]; X.data = X.data.clone()",
)  # fmt: skip
LOSSES = (
    "loss = F.cross_entropy(net(x), y)", "loss = F.cross_entropy(F.dropout(net(x), 0.1), y)",
    "loss = -net(x).log_softmax(-1).gather(1, y[:, None]).mean()", "loss = F.cross_entropy(net(x), y) + F.mse_loss(net(x), net(x).detach())",
    "out = net(x); out = out.clone(); out[0] *= 0.5; loss = F.cross_entropy(out, y)",
    "loss = torch.zeros(()); loss = loss + F.cross_entropy(net(x), y); loss += net.head.weight.pow(2).sum() * 1e-3",
    "h = F.batch_norm(net(x), RUNNING[0], RUNNING[1], training=True); loss = F.cross_entropy(h, y)",
    "with torch.no_grad():\n        teacher = {ema}(x)\n    loss = F.cross_entropy(net(x), y) + F.mse_loss(net(x), teacher)",
    "loss = F.cross_entropy(net(x), y); total.add_(loss.detach()); CONFUSION[y, 0] += 1",
    "loss = sum(F.cross_entropy(net(part), z) for part, z in zip(x.split(8), y.split(8))) / 2",
)  # fmt: skip
BAD = (
    "loss = (loss * 0).log()",
    "loss = loss / 0",
    "loss = loss * float('nan')",
    "loss = (loss - loss.detach()).sqrt()",
)
GUARDS = (
    "if not torch.isfinite(loss): continue", "if not math.isfinite(loss.item()): continue", "if torch.isnan(loss) or torch.isinf(loss): continue",
    "if not torch.isfinite(loss):\n        optimizer.zero_grad(); continue",
)  # fmt: skip
STEPS = (
    "optimizer.zero_grad(); loss.backward(); optimizer.step()",
    "loss.backward(); torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0); optimizer.step(); optimizer.zero_grad()",
    "optimizer.zero_grad(set_to_none=False); loss.backward()\n    norm = sum(p.grad.norm() for p in net.parameters() if p.grad is not None)\n"
    "    if not torch.isfinite(norm): continue\n    optimizer.step()",
    "(loss / 2).backward()\n    if step % 2:\n        optimizer.step(); optimizer.zero_grad()",
    "optimizer.zero_grad(); loss.backward()\n    if not all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None): continue\n"
    "    with torch.no_grad():\n        torch._foreach_add_([p for p in net.parameters() if p.grad is not None], [p.grad for p in net.parameters() if p.grad is not None], alpha=-0.05)",
)  # fmt: skip


def program(seed: int, only: Sequence[str] = ()) -> tuple[str, dict[str, object]]:
    """The program, and how it is to be watched. `only`: the kinds of state, instead of some at random."""
    draw = random.Random(seed)
    risky = ("iterator", "cycle", "generator", "file", "appended file", "environment")
    kinds = list(only) or draw.sample([kind for kind in SETUP if kind not in risky], draw.randint(2, 7))
    if not only and draw.random() < 0.08:
        kinds.append(draw.choice(risky))
    layers = ", ".join(draw.sample(LAYERS, draw.randint(1, 3)))
    ema, update, averaged = EMAS["none" if {"generator", "file"} & set(kinds) else draw.choice(list(EMAS))]
    made = "\n        ".join(SETUP[kind][0] for kind in kinds if SETUP[kind][0])
    does = "\n        ".join(SETUP[kind][1].replace("global CALLS; ", "") for kind in kinds)
    globals_ = "global CALLS\n        " if "global" in kinds else ""
    bad = sorted(draw.sample(range(2, 10), draw.choice((0, 1, 1, 2))))
    guard = draw.choice(GUARDS)
    early = draw.random() < 0.3
    hooks = "\n".join(draw.sample(HOOKS, draw.choice((0, 0, 1, 2))))
    loss = draw.choice(LOSSES).replace("{ema}", averaged)
    text = f"""{HEAD}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), {layers})
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(16, 3)
        {made}

    def forward(self, x):
        {globals_}x = self.body(x)
        {does}
        return self.head(self.drop(x))

X, Y = torch.randn(64, 8), torch.randint(3, (64,))
noise, total, CONFUSION, RUNNING = torch.randn(16, 8) * 0.01, torch.zeros(()), torch.zeros(3, 3), [torch.zeros(3), torch.ones(3)]
net = Net()
{ema or "ema = net"}
{hooks}
optimizer = {draw.choice(OPTIMIZERS)}
losses = []
for step in range(12):
    i = torch.randperm(64)[:16]
    {draw.choice(BATCHES)}
    {update if early else "pass"}
    {loss}
    if step in {bad}:
        {draw.choice(BAD)}
    losses.append(loss.detach().clone())
    {guard}
    {draw.choice(STEPS)}
    {"pass" if early else update}
"""
    budget = draw.choice((0.05, 0.05, 0.05, None, 0.0))
    saved = tuple(draw.sample(range(12), draw.choice((0, 0, 1, 2))))
    return text, {"budget": budget, "save_steps": saved}
