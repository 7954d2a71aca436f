"""A training whose steps callgrind counts: `counted.py MODEL STEPS`. `instructions.py` starts it under valgrind.

Nothing is counted but the steps between the client requests of `counting.c`, so the import of torch and the first steps run at the speed of
plain valgrind. `TENSONDE_COUNT=first` counts the first step instead.
"""

from __future__ import annotations

import ctypes
import os
import sys

import torch
from models import build, chain

WARM = 3


def main() -> None:
    name, steps = sys.argv[1], int(sys.argv[2])
    counter = ctypes.CDLL(os.environ["TENSONDE_COUNTER"])
    torch.set_num_threads(1)
    if name.startswith("chain "):
        model, batches = chain(*map(int, name.split()[1:]))
    else:
        model, batches = build(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    criterion = torch.nn.CrossEntropyLoss()
    begin = 0 if os.environ.get("TENSONDE_COUNT") == "first" else WARM
    for k in range(begin + steps):
        if k == begin:
            counter.counting_begins()
        x, y = batches[k % len(batches)]
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    counter.counting_ends()


if __name__ == "__main__":
    main()
