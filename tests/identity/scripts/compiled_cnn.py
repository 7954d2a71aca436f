"""A compiled CNN with batch norm and dropout, trained a few steps.

python compiled_cnn.py [inductor|rearranged|printing]

`rearranged` is a backend like inductor in what matters to a stop: compiled results differ from the framework's own kernels in the
last bits, what is kept for the backward pass lies channels-last in memory, and the backward pass insists on that and writes into it.
"""

import sys

import torch
from evidence import leave, seed
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd

import tensonde

torch._inductor.config.compile_threads = 1
kind = sys.argv[1] if len(sys.argv) > 1 else "rearranged"
kept_strides = []


def last(value):
    return value.to(memory_format=torch.channels_last) if isinstance(value, Tensor) and value.dim() == 4 else value


def slightly_other(value):
    return value * (1 + 2**-23) if isinstance(value, Tensor) and value.is_floating_point() else value


def forward(gm, inputs):
    def run(args):
        made = [last(slightly_other(value)) for value in gm(*args)]
        args.clear()
        kept_strides[:] = [value.stride() for value in made if isinstance(value, Tensor)]
        return made

    run._boxed_call = True
    return run


def backward(gm, inputs):
    def run(args):
        given = {arg.stride() for arg in args if isinstance(arg, Tensor) and arg.dim() == 4}
        assert all(strides in given for strides in kept_strides if len(strides) == 4), "assert_size_stride"
        made = [slightly_other(value) for value in gm(*args)]
        for arg in args:
            if isinstance(arg, Tensor) and arg.dim() == 4 and not arg.requires_grad and arg.shape[1] == 8:
                arg.zero_()  # a buffer that nobody needs any more is reused
        args.clear()
        return made

    run._boxed_call = True
    return run


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Conv2d(8, 8, 3, stride=2)
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        h = torch.relu(self.body(x))
        if kind == "printing":
            tensonde.print("norm", h.norm())
        return self.head(h.mean((2, 3)))


seed(3)
model = Net()
backend = "inductor" if kind == "inductor" else aot_autograd(fw_compiler=forward, bw_compiler=backward)
compiled = torch.compile(model, backend=backend)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
losses = []
for _ in range(6):
    images, labels = torch.randn(4, 3, 12, 12), torch.randint(0, 3, (4,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(compiled(images), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
leave(losses, {"model": model}, [optimizer])
