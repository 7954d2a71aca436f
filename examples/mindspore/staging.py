"""Parts that run compiled inside PyNative mode: a cell, a function, and a function that holds a layer.

Blocks of seed 003, with `jit`, which has taken the place of `ms_function`. Tensonde says that they run compiled; their results are seen.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, jit, nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
ONES = Tensor(np.ones((4, 4), np.float32))


class Sum(nn.Cell):
    @jit
    def construct(self, x, y):
        return ops.add(x, y)


compiled = Sum()(ONES, ONES)
print(ops.add(ONES, compiled).asnumpy()[0])


@jit
def added(x, y):
    return ops.add(x, y)


print(added(ONES, ONES).asnumpy()[0])

conv = nn.Conv2d(3, 4, 3, stride=2, padding=0, weight_init="ones")


@jit
def convolved(x):
    return conv(x)


print(convolved(Tensor(np.ones((2, 3, 6, 6), np.float32))).asnumpy()[0, 0])
