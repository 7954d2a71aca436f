"""`ops.Print` inside a compiled graph, and `tensonde.print`, which shows gradients, too.

The Print block of seed 004.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

import tensonde


class Shown(nn.Cell):
    def __init__(self):
        super().__init__()
        self.print = ops.Print()

    def construct(self, x, y):
        self.print("x and y:", x, y)
        return x


x, y = Tensor(np.ones((2, 1), np.int32)), Tensor(np.ones((2, 2), np.int32))
ms.set_context(mode=ms.GRAPH_MODE)
Shown()(x, y).asnumpy()
ms.set_context(mode=ms.PYNATIVE_MODE)


def squared(z):
    tensonde.print("gradient of z:", z, gradient=True)
    return (z * z).sum()


ms.grad(squared)(Tensor(np.array([1.0, 2.0], np.float32)))
