"""Trains through every kind of tensor: each is the output of one module and the input of another.

What a subclass of the user sees of the ops (`CALLS`) is printed: it must see its own program only.
"""

import hashlib
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.masked import masked_tensor
from torch.utils._pytree import tree_map

warnings.simplefilter("ignore")
torch.manual_seed(0)
torch.set_num_threads(1)


class Scaled(torch.Tensor):
    """As torchao's: the values are held by a tensor inside, and every op takes them out."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, requires_grad=inner.requires_grad
        )

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        return cls(inner["inner"])

    def __repr__(self):
        return "Scaled"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        CALLS[str(func)] = CALLS.get(str(func), 0) + 1
        args, kwargs = tree_map(lambda t: t.inner if isinstance(t, cls) else t, (args, kwargs or {}))
        out = func(*args, **kwargs)
        if func is torch.ops.aten.detach.default:
            return cls(out)
        return out


class Opaque(torch.Tensor):
    """Has no values to show: nothing but its own two ops works on it."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.hidden = [inner]

    def __repr__(self):
        return "Opaque"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"no {func} on Opaque")

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is Opaque.open:
            return args[0].hidden[0]
        return super().__torch_function__(func, types, args, kwargs or {})

    def open(self):
        return self.hidden[0]


class Tagged(nn.Parameter):
    pass


CALLS = {}
fake = FakeTensorMode()
rendezvous = tempfile.mkdtemp()
dist.init_process_group("gloo", init_method=f"file://{rendezvous}/store", rank=0, world_size=1)

mesh = init_device_mesh("cpu", (1,))

KINDS = {
    "coo": (lambda x: x.to_sparse(), lambda t, w: torch.sparse.mm(t, w)),
    "coo_uncoalesced": (
        lambda x: torch.sparse_coo_tensor(torch.tensor([[0, 0, 1], [1, 1, 2]]), x.reshape(-1)[:3], (4, 4)),
        lambda t, w: torch.sparse.mm(t, w),
    ),
    "csr": (lambda x: x.to_sparse_csr(), lambda t, w: torch.mm(t, w)),
    "csc": (lambda x: x.to_sparse_csc(), lambda t, w: t.to_dense() @ w),
    "bsr": (lambda x: x.detach().to_sparse_bsr((2, 2)), lambda t, w: t.to_dense() @ w),
    "bsc": (lambda x: x.detach().to_sparse_bsc((2, 2)), lambda t, w: t.to_dense() @ w),
    "nested": (
        lambda x: torch.nested.as_nested_tensor([x[:1], x[1:]]),
        lambda t, w: torch.cat([p @ w for p in t.unbind()]),
    ),
    "jagged": (
        lambda x: torch.nested.as_nested_tensor([x[:1], x[1:]], layout=torch.jagged),
        lambda t, w: t.values() @ w,
    ),
    "meta": (lambda x: torch.empty(4, 4, device="meta"), lambda t, w: w * t.numel()),
    "quantised": (
        lambda x: torch.quantize_per_tensor(x.detach(), 0.1, 0, torch.qint8),
        lambda t, w: t.dequantize() @ w,
    ),
    "complex": (lambda x: torch.complex(x, x).conj(), lambda t, w: (t @ w.to(t.dtype)).abs()),
    "fake": (lambda x: fake.from_tensor(x.detach()), lambda t, w: w * t.numel()),
    "dtensor": (lambda x: DTensor.from_local(x, mesh, [Replicate()]), lambda t, w: t.to_local() @ w),
    "scaled": (lambda x: Scaled(x.detach()), lambda t, w: t @ w),
    "opaque": (lambda x: Opaque(x.detach()), lambda t, w: t.open() @ w),
    "masked": (lambda x: masked_tensor(x.detach(), x.detach() > 0), lambda t, w: t.to_tensor(0.0) @ w),
    "tagged": (lambda x: x.as_subclass(Sub), lambda t, w: (t @ w).as_subclass(torch.Tensor)),
    "f16": (lambda x: x.half(), lambda t, w: t.float() @ w),
    "float8": (lambda x: x.detach().to(torch.float8_e4m3fn), lambda t, w: t.float() @ w),
    "negated": (lambda x: torch.complex(x, x).conj().imag, lambda t, w: t @ w),
    "expanded": (lambda x: x[:1].expand(4, 4), lambda t, w: t @ w),
    "zero_dim": (lambda x: x.sum(), lambda t, w: t * w),
}


class Sub(torch.Tensor):
    pass


class Give(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(x)


class Take(nn.Module):
    def __init__(self, use):
        super().__init__()
        self.w, self.use = nn.Parameter(torch.randn(4, 4) / 2), use

    def forward(self, t):
        return self.use(t, self.w)


class Branch(nn.Module):
    def __init__(self, kind):
        super().__init__()
        make, use = KINDS[kind]
        self.give, self.take = Give(make), Take(use)

    def forward(self, x):
        return self.take(self.give(x))


class Net(nn.Module):
    def __init__(self, kinds):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.branches = nn.ModuleDict({kind: Branch(kind) for kind in kinds})
        self.tagged = Tagged(torch.randn(4))
        self.embedding = nn.Embedding(10, 4, sparse=True)
        self.register_buffer("adjacency", torch.eye(4).to_sparse())
        self.register_buffer("rows", torch.eye(4).to_sparse_csr())
        self.frozen = nn.Parameter(Scaled(torch.ones(4, 4)), requires_grad=False)

    def forward(self, x, adjacency):
        h = (
            torch.sparse.mm(adjacency, self.first(x))
            + torch.sparse.mm(self.adjacency, self.tagged + x)
            + self.embedding(torch.tensor([1, 2, 3, 3]))
        )
        total = (h @ self.frozen).square().mean()
        for branch in self.branches.values():
            total = total + torch.tanh(branch(h)).square().mean()
        return total


kinds = sys.argv[1].split(",") if len(sys.argv) > 1 else list(KINDS)
model = Net(kinds)
dense = [p for n, p in model.named_parameters() if n != "embedding.weight" and p.requires_grad]
optimizers = [torch.optim.SGD(dense, lr=0.01), torch.optim.SparseAdam(list(model.embedding.parameters()), lr=0.01)]
weights = {k: v.detach() for k, v in model.first.named_parameters()}
for step in range(6):
    x = torch.randn(4, 4)
    for optimizer in optimizers:
        optimizer.zero_grad()
    CALLS.clear()
    loss = model(x, torch.eye(4).to_sparse() * 2)
    each = torch.func.vmap(
        torch.func.grad(lambda w, row: torch.func.functional_call(model.first, w, (row,)).sum()), in_dims=(None, 0)
    )(weights, x)
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    print(step, loss.item(), each["weight"].sum().item(), CALLS)
h = hashlib.sha256(b"".join(p.detach().contiguous().numpy().tobytes() for p in [*dense, *model.embedding.parameters()]))
print(h.hexdigest(), torch.rand(1).item())
